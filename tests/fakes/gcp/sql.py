"""GoogleSQL executed by DuckDB.

SQLGlot translates the queries. BigQuery may refuse queries that pass here, because DuckDB checks
types less strictly. Only conditions on `_PARTITIONTIME` exclude partitions from a scan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import duckdb
import sqlglot
from sqlglot import exp

from tests.fakes.gcp.billing import Table
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Body

_PARTITION: Final = "_PARTITIONTIME"
_TYPES: Final = {
    "STRING": "VARCHAR",
    "FLOAT64": "DOUBLE",
    "NUMERIC": "DECIMAL(38, 9)",
    "BOOL": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMPTZ",
}
_NAMES: Final = {
    "VARCHAR": "STRING",
    "DOUBLE": "FLOAT",
    "DECIMAL": "NUMERIC",
    "BOOLEAN": "BOOLEAN",
    "BIGINT": "INTEGER",
    "HUGEINT": "INTEGER",
    "DATE": "DATE",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows as BigQuery formats them, and the number of bytes read."""

    fields: list[Body]
    rows: list[Body]
    read_bytes: int


def execute(request: Body, project: str, tables: Mapping[str, Table]) -> Answer:
    """Execute a query on tables, which are named with their project.

    Raises:
        Refusal: a table does not exist, or the query can't be executed.
    """
    try:
        tree = sqlglot.parse_one(request["query"], read="bigquery")
    except sqlglot.ParseError as error:
        raise _invalid_query(f"Syntax error: {error}") from error
    parameters = dict(_parameter(parameter) for parameter in request.get("queryParameters", ()))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read_bytes = 0
        for number, reference in enumerate(list(_tables(tree))):
            table = _table(reference, project, tables)
            _create_table(connection, f"table_{number}", table)
            read_bytes += _read_bytes(connection, f"table_{number}", table, reference, parameters)
            reference.replace(exp.to_table(f"table_{number}"))
        columns, rows = _fetch(connection, tree, parameters)
    return Answer(
        [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in columns],
        [{"f": [{"v": _format_value(value)} for value in row]} for row in rows],
        read_bytes,
    )


def _tables(tree: exp.Expression) -> Iterator[exp.Table]:
    """Yield the tables of a query without those of its WITH clauses."""
    local_names = {expression.alias for expression in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name not in local_names:
            yield table


def _table(reference: exp.Table, project: str, tables: Mapping[str, Table]) -> Table:
    project, name = reference.catalog or project, f"{reference.db}.{reference.name}"
    table = tables.get(f"{project}.{name}")
    if table is None:
        message = f"Not found: Table {project}:{name} was not found in location US"
        raise Refusal(404, "notFound", message, state="NOT_FOUND")
    return table


def _create_table(connection: Any, name: str, table: Table) -> None:
    columns = dict(table.columns)
    if table.is_partitioned:
        columns[_PARTITION] = "TIMESTAMP"
    # JSON, because DuckDB takes a dictionary with a key and a value for a map.
    rows = json.dumps(_completed([columns], table.rows), default=str)
    unnested = f"SELECT unnest(CAST(CAST(? AS JSON) AS {_type([columns])})) AS whole"
    connection.execute(f"CREATE TABLE {name} AS SELECT unnest(whole) FROM ({unnested})", [rows])


def _read_bytes(
    connection: Any, name: str, table: Table, reference: exp.Table, parameters: Mapping[str, Any]
) -> int:
    """Return the bytes of the partitions that satisfy the conditions."""
    select = reference.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    parts = list(where.this.flatten()) if where is not None else []
    conditions = [
        part
        for part in parts
        if {column.name for column in part.find_all(exp.Column)} == {_PARTITION}
    ]
    count = exp.select("count(*)").from_(name)
    if table.is_partitioned and conditions:
        count = count.where(*conditions)
    _, rows = _fetch(connection, count, parameters)
    return int(rows[0][0]) * table.row_bytes


def _fetch(
    connection: Any, tree: exp.Expression, parameters: Mapping[str, Any]
) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Return columns with their types, and rows."""
    used = {parameter.name for parameter in tree.find_all(exp.Parameter)}
    if used - parameters.keys():
        missing = min(used - parameters.keys())
        raise _invalid_query(f"Query parameter '{missing}' not found")
    text = tree.transform(_with_scale).sql(dialect="duckdb")
    try:
        reply = connection.execute(text, {name: parameters[name] for name in used})
        rows = reply.fetchall()
    except duckdb.BinderException as error:
        raise _invalid_query(f"Unrecognized name: {error}") from error
    except duckdb.Error as error:
        raise _invalid_query(str(error)) from error
    kinds = [str(column[1]).partition("(")[0] for column in reply.description]
    return [
        (column[0], _NAMES[kind]) for column, kind in zip(reply.description, kinds, strict=True)
    ], rows


def _with_scale(node: exp.Expression) -> exp.Expression:
    """Give NUMERIC its nine decimal places, which SQLGlot omits."""
    if isinstance(node, exp.DataType) and node.this is exp.DataType.Type.DECIMAL:
        return exp.DataType.build(_TYPES["NUMERIC"])
    return node


def _parameter(parameter: Body) -> tuple[str, Any]:
    kind, value = parameter["parameterType"]["type"], parameter["parameterValue"]["value"]
    if kind not in ("STRING", "DATE"):
        raise _invalid_query(f"This fake does not do parameters of type {kind}.")
    return parameter["name"], date.fromisoformat(value) if kind == "DATE" else value


def _type(kind: Any) -> str:
    """Return DuckDB's name of a type."""
    if isinstance(kind, list):
        return f"{_type(kind[0])}[]"
    if isinstance(kind, Mapping):
        fields = ", ".join(f'"{name}" {_type(inner)}' for name, inner in kind.items())
        return f"STRUCT({fields})"
    return _TYPES[kind]


def _completed(kind: Any, value: Any) -> Any:
    """Return a value with all fields of its type; an array is never NULL."""
    if isinstance(kind, list):
        return [_completed(kind[0], item) for item in value or ()]
    if isinstance(kind, Mapping) and value is not None:
        return {name: _completed(inner, value.get(name)) for name, inner in kind.items()}
    return value


def _format_value(value: Any) -> str | None:
    """Return a value as BigQuery formats it in replies."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case Decimal():
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def _invalid_query(words: str) -> Refusal:
    line = " ".join(words.split())
    return Refusal(400, "invalidQuery", line, state="INVALID_ARGUMENT")
