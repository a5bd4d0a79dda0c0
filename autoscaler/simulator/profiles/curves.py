"""Learning curves of completed trials, from which studies are simulated."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.simulator.profiles.rows import Row, read_rows

_COLUMNS: Final = ("trial", "epoch", "value", "seconds")


@dataclass(frozen=True)
class RecordedCurve:
    """Reports of one trial: epochs, values, and seconds on one device until each report.

    Epochs and seconds are increasing. `parameters` are hyper-parameters as text.
    """

    trial: str
    parameters: Mapping[str, str]
    epochs: tuple[float, ...]
    values: tuple[float, ...]
    end_seconds: tuple[float, ...]

    @cached_property
    def seconds_an_epoch(self) -> float:
        """Mean seconds of an epoch on one device."""
        return self.end_seconds[-1] / self.epochs[-1]

    def reports_until(self, epochs: float) -> int:
        """Return the number of reports until an epoch, the first one at or after it included."""
        return min(bisect_left(self.epochs, epochs) + 1, len(self.epochs))


def read_curves(path: Path) -> tuple[RecordedCurve, ...]:
    """Read the curves of a CSV file, in the order of their first rows.

    A row is a report: ``trial,epoch,value,seconds``. `seconds` is the training time on one device
    since the last report. All other columns are hyper-parameters.

    Raises:
        SpecError: the file is invalid; the error names file, line and column.
    """
    rows: dict[str, list[Row]] = {}
    for row in read_rows(path, _COLUMNS):
        rows.setdefault(row.text("trial"), []).append(row)
    return tuple(_curve(trial, trial_rows) for trial, trial_rows in rows.items())


def _curve(trial: str, rows: Sequence[Row]) -> RecordedCurve:
    names = [name for name in rows[0].values if name not in _COLUMNS]
    parameters = {name: rows[0].text(name) for name in names}
    epochs: list[float] = []
    for row in rows:
        epoch = row.positive("epoch")
        if epochs and epoch <= epochs[-1]:
            raise row.error("epoch", f"{epoch:g} is not above {epochs[-1]:g}, the one before")
        for name in names:
            if row.text(name) != parameters[name]:
                values = f"{quoted(row.text(name))} was {quoted(parameters[name])}"
                raise row.error(name, f"{values} above: a trial has one")
        epochs.append(epoch)
    return RecordedCurve(
        trial=trial,
        parameters=parameters,
        epochs=tuple(epochs),
        values=tuple(row.finite("value") for row in rows),
        end_seconds=tuple(accumulate(row.positive("seconds") for row in rows)),
    )


def features(curve: RecordedCurve, curves: Sequence[RecordedCurve]) -> Mapping[str, float]:
    """Return hyper-parameters as numbers.

    A parameter that is text in any curve becomes one 0/1 feature per value, ``name=value``.
    """
    numbers: dict[str, float] = {}
    for name, text in curve.parameters.items():
        all_texts = {other.parameters[name] for other in curves}
        if all(_number(other_text) is not None for other_text in all_texts):
            numbers[name] = _number(text) or 0.0
        else:
            numbers |= {f"{name}={value}": float(value == text) for value in sorted(all_texts)}
    return numbers


def number_of(curve: RecordedCurve, name: str) -> float:
    """Return a hyper-parameter that is a number above 0.

    Raises:
        SpecError: it is not such a number.
    """
    number = _number(curve.parameters.get(name, ""))
    if number is None or number <= 0:
        text = curve.parameters.get(name)
        problem = (
            "is no column of the curves"
            if text is None
            else f"{quoted(text)} is no number above 0"
        )
        raise SpecError(f"{problem}, of trial {curve.trial}", name)
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
