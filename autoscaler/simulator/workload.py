"""Workloads: which applications are submitted when."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.rows import read_rows


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job of a workload: `submitted_seconds` after its start, a run of an application.

    `devices_requested` and `batch_size` are what a user would ask for where neither adapts;
    `place` is the file and line that it is from, if any.
    """

    name: str
    submitted_seconds: float
    application: str
    devices_requested: int
    batch_size: int
    place: str = field(default="", compare=False)

    def error(self, column: str, message: str) -> SpecError:
        """What is wrong with a column of its row, to be raised."""
        return SpecError(message, field=f"{self.place or self.name}: {column}")


def read_workload(path: Path) -> tuple[Arrival, ...]:
    """A workload in the format that Pollux (OSDI'21) publishes, by time.

    Raises:
        SpecError: the file is not as it should be: a time is below that of the row before, a name
            stands twice. It names file, line and field.
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
            raise row.error("name", f"{arrival.name!r} stands twice: each job needs its own")
        if arrival.submitted_seconds < last_seconds:
            message = f"{arrival.submitted_seconds:g} is before the row above: sort them by time"
            raise row.error("time", message)
        arrivals[arrival.name] = arrival
        last_seconds = arrival.submitted_seconds
    return tuple(arrivals.values())


def require_applications(workload: Iterable[Arrival], profiles: Collection[str]) -> None:
    """Make sure that every application of a workload has a profile, by its name.

    Raises:
        SpecError: one has none.
    """
    for arrival in workload:
        if arrival.application not in profiles:
            known = ", ".join(sorted(profiles))
            message = f"{arrival.application!r} has no profile: there are {known}"
            raise arrival.error("application", message)
