"""GoogleSQL, carried out by DuckDB.

SQLGlot translates it. What it reads, and DuckDB carries out, BigQuery may still refuse, for types
are checked less strictly here. Partitions are passed over by conditions on `_PARTITIONTIME` alone.
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
    """Rows as BigQuery writes them, and how many bytes it took to read them."""

    fields: list[Body]
    rows: list[Body]
    read_bytes: int


def carried_out(request: Body, project: str, tables: Mapping[str, Table]) -> Answer:
    """What a query finds in tables, which are named with their project.

    Raises:
        Refusal: there is no such table, or it is no query that can be carried out.
    """
    try:
        tree = sqlglot.parse_one(request["query"], read="bigquery")
    except sqlglot.ParseError as error:
        raise _invalid_query(f"Syntax error: {error}") from error
    parameters = dict(_parameter(told) for told in request.get("queryParameters", ()))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read_bytes = 0
        for number, place in enumerate(list(_tables(tree))):
            table = _table(place, project, tables)
            _lay(connection, f"table_{number}", table)
            read_bytes += _read_bytes(connection, f"table_{number}", table, place, parameters)
            place.replace(exp.to_table(f"table_{number}"))
        columns, rows = _fetched(connection, tree, parameters)
    return Answer(
        [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in columns],
        [{"f": [{"v": _written(value)} for value in row]} for row in rows],
        read_bytes,
    )


def _tables(tree: exp.Expression) -> Iterator[exp.Table]:
    """Those that are none of the query's own."""
    own = {one.alias for one in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name not in own:
            yield table


def _table(place: exp.Table, project: str, tables: Mapping[str, Table]) -> Table:
    project, name = place.catalog or project, f"{place.db}.{place.name}"
    found = tables.get(f"{project}.{name}")
    if found is None:
        words = f"Not found: Table {project}:{name} was not found in location US"
        raise Refusal(404, "notFound", words, state="NOT_FOUND")
    return found


def _lay(connection: Any, name: str, table: Table) -> None:
    columns = dict(table.columns)
    if table.is_partitioned:
        columns[_PARTITION] = "TIMESTAMP"
    # As JSON: DuckDB takes a dictionary that has a key and a value for a map.
    rows = json.dumps(_whole([columns], table.rows), default=str)
    each = f"SELECT unnest(CAST(CAST(? AS JSON) AS {_type([columns])})) AS whole"
    connection.execute(f"CREATE TABLE {name} AS SELECT unnest(whole) FROM ({each})", [rows])


def _read_bytes(
    connection: Any, name: str, table: Table, place: exp.Table, parameters: Mapping[str, Any]
) -> int:
    """Of the partitions that the conditions leave."""
    select = place.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    parts = list(where.this.flatten()) if where is not None else []
    wanted = [
        part for part in parts if {one.name for one in part.find_all(exp.Column)} == {_PARTITION}
    ]
    count = exp.select("count(*)").from_(name)
    if table.is_partitioned and wanted:
        count = count.where(*wanted)
    _, rows = _fetched(connection, count, parameters)
    return int(rows[0][0]) * table.row_bytes


def _fetched(
    connection: Any, tree: exp.Expression, parameters: Mapping[str, Any]
) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Columns with their types, and rows."""
    wanted = {one.name for one in tree.find_all(exp.Parameter)}
    if wanted - parameters.keys():
        missing = min(wanted - parameters.keys())
        raise _invalid_query(f"Query parameter '{missing}' not found")
    text = tree.transform(_with_scale).sql(dialect="duckdb")
    try:
        reply = connection.execute(text, {name: parameters[name] for name in wanted})
        rows = reply.fetchall()
    except duckdb.BinderException as error:
        raise _invalid_query(f"Unrecognized name: {error}") from error
    except duckdb.Error as error:
        raise _invalid_query(str(error)) from error
    kinds = [str(told[1]).partition("(")[0] for told in reply.description]
    return [
        (told[0], _NAMES[kind]) for told, kind in zip(reply.description, kinds, strict=True)
    ], rows


def _with_scale(node: exp.Expression) -> exp.Expression:
    """BigQuery's NUMERIC has nine places behind the point; SQLGlot leaves that to DuckDB's own."""
    if isinstance(node, exp.DataType) and node.this is exp.DataType.Type.DECIMAL:
        return exp.DataType.build(_TYPES["NUMERIC"])
    return node


def _parameter(told: Body) -> tuple[str, Any]:
    kind, value = told["parameterType"]["type"], told["parameterValue"]["value"]
    if kind not in ("STRING", "DATE"):
        raise _invalid_query(f"This fake does not do parameters of type {kind}.")
    return told["name"], date.fromisoformat(value) if kind == "DATE" else value


def _type(kind: Any) -> str:
    """As DuckDB calls it."""
    if isinstance(kind, list):
        return f"{_type(kind[0])}[]"
    if isinstance(kind, Mapping):
        fields = ", ".join(f'"{name}" {_type(inner)}' for name, inner in kind.items())
        return f"STRUCT({fields})"
    return _TYPES[kind]


def _whole(kind: Any, value: Any) -> Any:
    """The value with all that its type has; an array is never NULL."""
    if isinstance(kind, list):
        return [_whole(kind[0], one) for one in value or ()]
    if isinstance(kind, Mapping) and value is not None:
        return {name: _whole(inner, value.get(name)) for name, inner in kind.items()}
    return value


def _written(value: Any) -> str | None:
    """As BigQuery writes values into its replies."""
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
