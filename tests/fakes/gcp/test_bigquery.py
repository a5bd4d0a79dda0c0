"""Queries by Google's own client: executed, paged, billed and refused ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("sqlglot", reason="sqlglot is not installed")

from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from tests.fakes.gcp.billing import Billed, Table
from tests.fakes.gcp.clients import ProjectClients

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
GIB = 2**30


@pytest.fixture
def table(clients: ProjectClients) -> Table:
    """Return a table of three days; use at noon is exported in the evening."""
    filled = Table()
    for days in range(3):
        line = Billed(NOON + timedelta(days=days), f"SKU {days}", 0.1, {"team": "vision"})
        filled.rows.append(line.row())
    clients.project.tables[f"{clients.name}.billing.export"] = filled
    return filled


def jobs(clients: ProjectClients) -> Any:
    endpoint = {"api_endpoint": f"{clients.fake.url}/bigquery/v2/"}
    return build("bigquery", "v2", developerKey="none", client_options=endpoint).jobs()


def asked(clients: ProjectClients, text: str, **others: Any) -> Any:
    query = text.replace("EXPORT", f"`{clients.name}.billing.export`")
    body = {"query": query, "useLegacySql": False, **others}
    return jobs(clients).query(projectId=clients.name, body=body).execute()


def refused(clients: ProjectClients, text: str, **others: Any) -> str:
    with pytest.raises(HttpError) as caught:
        asked(clients, text, **others)
    (detail,) = caught.value.error_details
    return f"{caught.value.status_code} {detail['reason']}: {detail['message']}"


def test_values_are_written_as_bigquery_writes_them(clients: ProjectClients, table: Table) -> None:
    text = """
        SELECT DATE(usage_start_time) AS day, sku.description AS sku_name, COUNT(*) AS lines,
          SUM(CAST(cost AS NUMERIC)) AS cost, MAX(cost_type = 'tax') AS is_tax, MAX(sku.id) AS id
        FROM EXPORT GROUP BY day, sku_name ORDER BY day LIMIT 1
    """
    answer = asked(clients, text)
    assert answer["schema"]["fields"] == [
        {"name": name, "type": kind, "mode": "NULLABLE"}
        for name, kind in (
            ("day", "DATE"),
            ("sku_name", "STRING"),
            ("lines", "INTEGER"),
            ("cost", "NUMERIC"),
            ("is_tax", "BOOLEAN"),
            ("id", "STRING"),
        )
    ]
    (row,) = answer["rows"]
    assert [cell["v"] for cell in row["f"]] == ["2026-11-01", "SKU 0", "1", "0.1", "false", None]


def test_a_numeric_has_nine_places(clients: ProjectClients, table: Table) -> None:
    answer = asked(clients, "SELECT SUM(CAST(cost / 3 AS NUMERIC)) AS third FROM EXPORT")
    assert answer["rows"] == [{"f": [{"v": "0.099999999"}]}]


def test_rows_come_a_page_at_a_time_once_they_are_there(
    clients: ProjectClients, table: Table
) -> None:
    clients.project.page, clients.project.query_polls = 2, 1
    answer = asked(clients, "SELECT sku.description AS sku_name FROM EXPORT ORDER BY sku_name")
    assert answer["jobComplete"] is False and "rows" not in answer
    names, token = [], None
    while token is not None or not names:
        answer = jobs(clients).getQueryResults(**answer["jobReference"], pageToken=token).execute()
        names += [cell["v"] for row in answer["rows"] for cell in row["f"]]
        token = answer.get("pageToken")
    assert names == ["SKU 0", "SKU 1", "SKU 2"]


def test_partitions_that_conditions_leave_out_are_not_billed(
    clients: ProjectClients, table: Table
) -> None:
    table.row_bytes = GIB
    everything = "SELECT COUNT(*) AS lines FROM EXPORT WHERE DATE(usage_start_time) = @day"
    day = {
        "name": "day",
        "parameterType": {"type": "DATE"},
        "parameterValue": {"value": "2026-11-02"},
    }
    assert asked(clients, everything, queryParameters=[day])["totalBytesBilled"] == str(3 * GIB)
    limited = f"{everything} AND _PARTITIONTIME >= TIMESTAMP(@day)"
    answer = asked(clients, limited, queryParameters=[day], maximumBytesBilled=str(2 * GIB))
    assert answer["totalBytesBilled"] == str(2 * GIB)
    assert answer["rows"] == [{"f": [{"v": "1"}]}]
    said = refused(clients, limited, queryParameters=[day], maximumBytesBilled=str(2 * GIB - 1))
    assert said.startswith("400 bytesBilledLimitExceeded: Query exceeded limit")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT nothing FROM EXPORT", "400 invalidQuery: Unrecognized name"),
        ("SELECT sku.price AS price FROM EXPORT", "400 invalidQuery: "),
        ("SELEC cost FROM EXPORT", "400 invalidQuery: "),
        ("SELECT cost FROM EXPORT WHERE cost > @least", "400 invalidQuery: Query parameter"),
        ("SELECT cost FROM `elsewhere.billing.export`", "404 notFound: Not found: Table"),
    ],
)
def test_what_can_t_be_carried_out_is_refused(
    clients: ProjectClients, table: Table, text: str, said: str
) -> None:
    assert refused(clients, text).startswith(said)


def test_legacy_sql_is_what_a_query_is_in_unless_it_says_so(
    clients: ProjectClients, table: Table
) -> None:
    assert "legacy SQL" in refused(clients, "SELECT cost FROM EXPORT", useLegacySql=None)


def test_what_is_not_partitioned_has_no_partitions(clients: ProjectClients, table: Table) -> None:
    table.is_partitioned = False
    assert "Unrecognized name" in refused(clients, "SELECT _PARTITIONTIME AS day FROM EXPORT")
