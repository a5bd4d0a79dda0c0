"""Schedules of regimes: batches of a job over its epochs, and the time of an epoch in each."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import parse_json, quoted
from autoscaler.simulator.profiles.rows import text_of
from autoscaler.simulator.workloads.workload import Arrival


@dataclass(frozen=True, slots=True)
class ScheduledRegime:
    """Number of epochs at one batch, and seconds of each on the requested devices."""

    batch: int
    epochs: int
    epoch_seconds: float

    @property
    def seconds(self) -> float:
        """Duration without a pause."""
        return self.epochs * self.epoch_seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """One job's regimes in order, on the devices it requests."""

    devices: int
    samples_per_epoch: int
    regimes: tuple[ScheduledRegime, ...]

    @property
    def epochs(self) -> int:
        """Epochs of the whole run."""
        return sum(regime.epochs for regime in self.regimes)

    @property
    def seconds(self) -> float:
        """Duration of the run without a pause."""
        return sum(regime.seconds for regime in self.regimes)


def read_regimes(
    directory: Path, trace: Path, arrivals: Sequence[Arrival]
) -> Mapping[str, Schedule]:
    """Read the schedule of each job of a trace, by name, from DIRECTORY/TRACE.json.

    The file holds a list of jobs: ``{"job": 0, "gpus": 1, "samples_per_epoch": 50000, "regimes":
    [{"batch_size": 32, "epochs": 10, "epoch_seconds": 36.4}]}``. `job` is the row of the trace,
    from 0. Other keys are ignored.

    Raises:
        SpecError: the file can't be read or is invalid, a job has no schedule, or its schedule is
            for other devices; the error names file, job and field.
    """
    path = directory / f"{trace.stem}.json"
    jobs = _jobs(path)
    schedules = {}
    for number, arrival in enumerate(arrivals):
        if number not in jobs:
            raise SpecError(f"has no regimes of {arrival.name} of {trace.name}", field=str(path))
        schedule = _schedule(jobs[number])
        if schedule.devices != arrival.devices_requested:
            message = f"{schedule.devices}, but the trace says {arrival.devices_requested}"
            raise jobs[number].error("gpus", message)
        schedules[arrival.name] = schedule
    return schedules


@dataclass(frozen=True, slots=True)
class _Entry:
    """Object of the file with its position, for error messages."""

    path: Path
    place: str
    values: Mapping[str, object]

    def positive(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            shown = "is missing" if value is None else f"{quoted(value)} is not a number"
            raise self.error(key, shown)
        if not 0 < value <= sys.float_info.max:
            raise self.error(key, f"{quoted(value)} is not a finite number above 0")
        return float(value)

    def count(self, key: str) -> int:
        number = self.positive(key)
        if not number.is_integer():
            raise self.error(key, f"{number:g} is not a whole number")
        return int(number)

    def entries(self, key: str) -> list[_Entry]:
        values = self.values.get(key)
        if not isinstance(values, list) or not values:
            raise self.error(key, "is not a list of at least one")
        return _entries(self.path, f"{self.place}: {key}", values)

    def error(self, key: str, message: str) -> SpecError:
        return SpecError(message, field=f"{self.path}: {self.place}: {key}")


def _entries(path: Path, place: str, values: Sequence[object]) -> list[_Entry]:
    entries = []
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise SpecError("is not an object", field=f"{path}: {place}[{number}]")
        entries.append(_Entry(path, f"{place}[{number}]", value))
    return entries


def _jobs(path: Path) -> dict[int, _Entry]:
    """Return the jobs of the file by row of the trace."""
    try:
        values = parse_json(text_of(path))
    except json.JSONDecodeError as error:
        raise SpecError(f"is not JSON: {error.msg}", field=f"{path}:{error.lineno}") from None
    except ValueError as error:
        raise SpecError(f"is not JSON: {error}", field=str(path)) from None
    if not isinstance(values, list):
        raise SpecError("is not a list of jobs", field=str(path))
    jobs: dict[int, _Entry] = {}
    for entry in _entries(path, "", values):
        number = entry.values.get("job")
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise entry.error("job", f"{quoted(number)} is not the number of a row, from 0")
        if number in jobs:
            raise entry.error("job", f"{number} occurs twice")
        jobs[number] = _Entry(path, f"job {number}", entry.values)
    return jobs


def _schedule(job: _Entry) -> Schedule:
    schedule = Schedule(
        devices=job.count("gpus"),
        samples_per_epoch=job.count("samples_per_epoch"),
        regimes=tuple(
            ScheduledRegime(
                batch=regime.count("batch_size"),
                epochs=regime.count("epochs"),
                epoch_seconds=regime.positive("epoch_seconds"),
            )
            for regime in job.entries("regimes")
        ),
    )
    if "epochs" in job.values and job.count("epochs") != schedule.epochs:
        raise job.error("epochs", f"{job.count('epochs')}, but its regimes have {schedule.epochs}")
    return schedule
