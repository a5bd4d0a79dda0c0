"""Traces of rigid jobs whose batch changes during the run."""

from __future__ import annotations

import re
from pathlib import Path

from autoscaler.domain.text import quoted
from autoscaler.simulator.profiles.rows import Row, read_columns
from autoscaler.simulator.workloads.workload import Arrival

_COLUMNS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data_directory",
    "total_steps",
    "scale_factor",
    "mode",
    "priority",
    "slo",
    "duration",
    "arrival",
)
_JOB_TYPE = re.compile(r"(?P<model>.+) \(batch size (?P<batch>[1-9][0-9]{0,8})\)")
# Rules by which the batch changes: never, by phases of learning, by the gradient noise scale.
_MODES = ("static", "accordion", "gns")


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """Read a workload in the format of Gavel (OSDI'20) and Shockwave (NSDI'23), sorted by time.

    Jobs are named job-0, job-1, ... in the order of the rows.

    Raises:
        SpecError: the file is invalid; the error names file, line and field.
    """
    arrivals: list[Arrival] = []
    for number, row in enumerate(read_columns(path, _COLUMNS)):
        arrival = _arrival(f"job-{number}", row)
        if arrivals and arrival.submitted_seconds < arrivals[-1].submitted_seconds:
            message = f"{arrival.submitted_seconds:g} is before the row above: sort them by time"
            raise row.error("arrival", message)
        arrivals.append(arrival)
    return tuple(arrivals)


def _arrival(name: str, row: Row) -> Arrival:
    job_type = _JOB_TYPE.fullmatch(row.text("job_type"))
    if job_type is None:
        shown = quoted(row.text("job_type"))
        raise row.error("job_type", f'{shown} is not like "LM (batch size 10)"')
    if row.text("mode") not in _MODES:
        raise row.error("mode", f"{quoted(row.text('mode'))} is none of {', '.join(_MODES)}")
    row.count("total_steps")
    row.positive("duration")
    return Arrival(
        name=name,
        submitted_seconds=row.moment("arrival"),
        application=job_type["model"],
        devices_requested=row.count("scale_factor"),
        batch_size=int(job_type["batch"]),
        place=row.place,
    )
