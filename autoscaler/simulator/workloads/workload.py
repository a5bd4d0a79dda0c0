"""Workloads: the submissions of jobs over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.simulator.profiles.rows import read_rows


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job of a workload: a run of an application, submitted at `submitted_seconds`.

    Times are relative to the start of the workload. `devices_requested` and `batch_size` are what
    a user would request without adaptation. `place` is the file and line of the row, if any.
    """

    name: str
    submitted_seconds: float
    application: str
    devices_requested: int
    batch_size: int
    place: str = field(default="", compare=False)

    def error(self, column: str, message: str) -> SpecError:
        """Return an error about a column of the row, for the caller to raise."""
        return SpecError(message, field=f"{self.place or self.name}: {column}")


def read_workload(path: Path) -> tuple[Arrival, ...]:
    """Read a workload in the format that Pollux (OSDI'21) publishes, sorted by time.

    Raises:
        SpecError: the file is invalid, times decrease, or a name occurs twice; the error names
            file, line and field.
    """
    arrivals: dict[str, Arrival] = {}
    last_seconds = 0.0
    for row in read_rows(path, ("name", "time", "application", "num_replicas", "batch_size")):
        arrival = Arrival(
            name=row.text("name"),
            submitted_seconds=row.moment("time"),
            application=row.text("application"),
            devices_requested=row.count("num_replicas"),
            batch_size=row.count("batch_size"),
            place=row.place,
        )
        if arrival.name in arrivals:
            raise row.error("name", f"{quoted(arrival.name)} occurs twice: each job needs its own")
        if arrival.submitted_seconds < last_seconds:
            message = f"{arrival.submitted_seconds:g} is before the row above: sort them by time"
            raise row.error("time", message)
        arrivals[arrival.name] = arrival
        last_seconds = arrival.submitted_seconds
    return tuple(arrivals.values())


def require_applications(workload: Iterable[Arrival], profiles: Collection[str]) -> None:
    """Check that every application of a workload has a profile of its name.

    Raises:
        SpecError: an application has no profile.
    """
    for arrival in workload:
        if arrival.application not in profiles:
            known = ", ".join(sorted(profiles))
            message = f"{quoted(arrival.application)} has no profile: there are {known}"
            raise arrival.error("application", message)
