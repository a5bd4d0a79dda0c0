"""BigQuery: queries over the tables that a test has defined. There is no IAM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Body

_MIB: Final = 2**20
_MINIMUM_MIB: Final = 10


@dataclass(slots=True)
class Job:
    """Executed query, and the number of polls until it is reported as complete."""

    id: str
    answer: Any
    polls_left: int

    @property
    def billed_bytes(self) -> int:
        return max(_MINIMUM_MIB, math.ceil(self.answer.read_bytes / _MIB)) * _MIB


def query(call: Call) -> Body:
    body = call.body
    if body.get("useLegacySql") is not False:
        raise Refusal(400, "invalidQuery", "This fake does not do legacy SQL.")
    # Imported here, because the rest of the fake does not need DuckDB.
    from tests.fakes.gcp.sql import execute

    answer = execute(body, call.project.id, call.project.tables)
    name = f"job_{call.project.next_number()}"
    job = Job(name, answer, call.project.query_polls)
    maximum_bytes = body.get("maximumBytesBilled")
    if maximum_bytes is not None and job.billed_bytes > int(maximum_bytes):
        problem = f"Query exceeded limit for bytes billed: {maximum_bytes}."
        raise Refusal(
            400,
            "bytesBilledLimitExceeded",
            f"{problem} {job.billed_bytes} or higher required.",
        )
    call.project.queries[name] = job
    shown = _page(call, job, 0)
    if shown["jobComplete"]:
        shown["totalBytesBilled"] = str(job.billed_bytes)
    return {"kind": "bigquery#queryResponse", **shown}


def get_query_results(call: Call) -> Body:
    name = call.parameters["jobId"]
    job: Job | None = call.project.queries.get(name)
    if job is None or call.parameters.get("location") != "US":
        raise Refusal(404, "notFound", f"Not found: Job {call.project.id}:{name}")
    first = int(call.parameters.get("pageToken") or 0)
    return {"kind": "bigquery#getQueryResultsResponse", **_page(call, job, first)}


def _page(call: Call, job: Job, first: int) -> Body:
    reference = {"projectId": call.project.id, "jobId": job.id, "location": "US"}
    if job.polls_left > 0:
        job.polls_left -= 1
        return {"jobReference": reference, "jobComplete": False}
    end = first + (call.project.page or len(job.answer.rows))
    shown: Body = {
        "jobReference": reference,
        "jobComplete": True,
        "schema": {"fields": job.answer.fields},
        "totalRows": str(len(job.answer.rows)),
        "totalBytesProcessed": str(job.answer.read_bytes),
        "cacheHit": False,
    }
    if job.answer.rows:
        shown["rows"] = job.answer.rows[first:end]
    return shown | ({"pageToken": str(end)} if end < len(job.answer.rows) else {})


HANDLERS: dict[str, Handler] = {
    "bigquery.jobs.query": query,
    "bigquery.jobs.getQueryResults": get_query_results,
}
