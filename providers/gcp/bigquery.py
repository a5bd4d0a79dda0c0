"""Client for single BigQuery queries, paid for by one project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from providers.cloud.replies import readable
from providers.gcp.errors import Call
from providers.gcp.rest import send
from providers.gcp.session import Session

Row = Mapping[str, str | None]
"""Row of a result: values by column, as text; None is NULL."""

_MAX_QUERY_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 10.0  # BigQuery's wait for the query's end before it answers
_ANSWER_SECONDS: Final = 30.0
_MAX_PAGES: Final = 200
_MIN_BILLED_BYTES: Final = 10 * 2**20  # minimum billed for each table that is read


@dataclass(frozen=True, slots=True)
class Query:
    """Query in GoogleSQL, with parameters written `@name`.

    A query that would read more than `most_bytes` fails without cost.
    """

    text: str
    parameters: Mapping[str, str | date]
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a result, and the number of bytes that the query is billed for."""

    rows: Sequence[Row]
    billed_bytes: int


class BigQuery:
    """Client for queries that `project` pays for."""

    def __init__(self, project: str, session: Session, clock: Clock) -> None:
        self._call = Call(project, "jobs.query")
        self._session = session
        self._clock = clock
        self._url = f"{session.base('bigquery')}/bigquery/v2/projects/{project}/queries"

    def find(self, query: Query) -> Found:
        """Return all rows of a query.

        Raises:
            ProviderError: the query is refused or takes too long, or the reply can't be read.
        """
        reply = self._send("POST", self._url, json=_request(query))
        with readable(str(self._call)):
            job = reply["jobReference"]
            url, location = f"{self._url}/{job['jobId']}", {"location": job.get("location", "")}
        reply = self._wait_until_complete(reply, url, location)
        with readable(str(self._call)):
            billed_bytes = _billed_bytes(reply)
        rows: list[Row] = []
        for _ in range(_MAX_PAGES):
            with readable(str(self._call)):
                rows.extend(_rows(reply))
                token = reply.get("pageToken")
            if not token:
                return Found(rows, billed_bytes)
            reply = self._send("GET", url, params=location | {"pageToken": str(token)})
        raise Unavailable(f"{self._call}: the result has more than {_MAX_PAGES} pages")

    def _wait_until_complete(
        self, reply: Mapping[str, Any], url: str, location: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Return the first reply with rows, once the query has ended."""
        parameters = {**location, "timeoutMs": str(int(_WAIT_SECONDS * 1000))}
        until_seconds = self._clock.monotonic() + _MAX_QUERY_SECONDS
        while not self._is_complete(reply):
            if self._clock.monotonic() >= until_seconds:
                raise Unavailable(
                    f"{self._call}: the query has not ended in {_MAX_QUERY_SECONDS:.0f} s: retry"
                )
            self._clock.sleep(_POLL_SECONDS)
            reply = self._send("GET", url, params=parameters)
        return reply

    def _is_complete(self, reply: Mapping[str, Any]) -> bool:
        with readable(str(self._call)):
            return bool(reply["jobComplete"])

    def _send(self, verb: str, url: str, **options: Any) -> Mapping[str, Any]:
        return send(self._session, self._call, verb, url, _ANSWER_SECONDS, **options)


def _request(query: Query) -> dict[str, Any]:
    return {
        "query": query.text,
        "useLegacySql": False,
        "parameterMode": "NAMED",
        "queryParameters": [_parameter(*item) for item in query.parameters.items()],
        "maximumBytesBilled": str(query.most_bytes),
        "timeoutMs": int(_WAIT_SECONDS * 1000),
    }


def _parameter(name: str, value: str | date) -> dict[str, Any]:
    kind = "DATE" if isinstance(value, date) else "STRING"
    return {
        "name": name,
        "parameterType": {"type": kind},
        "parameterValue": {"value": str(value)},
    }


def _rows(reply: Mapping[str, Any]) -> list[Row]:
    names = [field["name"] for field in reply["schema"]["fields"]]
    return [
        dict(zip(names, [cell["v"] for cell in row["f"]], strict=True))
        for row in reply.get("rows", ())
    ]


def _billed_bytes(reply: Mapping[str, Any]) -> int:
    """Return the billed bytes. Later replies report only the bytes read, billed by whole MiB."""
    total_billed = reply.get("totalBytesBilled")
    if total_billed is not None:
        return int(total_billed)
    read_bytes = int(reply["totalBytesProcessed"])
    return max(_MIN_BILLED_BYTES, -(-read_bytes // 2**20) * 2**20)
