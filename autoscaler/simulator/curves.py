"""Learning curves of trials that were trained to their ends: what studies are simulated from."""

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
from autoscaler.simulator.rows import Row, read_rows

_COLUMNS: Final = ("trial", "epoch", "value", "seconds")


@dataclass(frozen=True)
class Curve:
    """One trial: what it reported after so many epochs, and the seconds on one device until then.

    Epochs and seconds rise; `parameters` are its hyper-parameters as they are written.
    """

    trial: str
    parameters: Mapping[str, str]
    epochs: tuple[float, ...]
    values: tuple[float, ...]
    end_seconds: tuple[float, ...]

    @cached_property
    def seconds_an_epoch(self) -> float:
        """On average, on one device."""
        return self.end_seconds[-1] / self.epochs[-1]

    def reports_until(self, epochs: float) -> int:
        """How many reports there are once so many epochs are over, the one then included."""
        return min(bisect_left(self.epochs, epochs) + 1, len(self.epochs))


def read_curves(path: Path) -> tuple[Curve, ...]:
    """The curves of a CSV file, in the order of their first rows.

    A row is a report: ``trial,epoch,value,seconds``, where `seconds` is what training took on one
    device since the report before. Whatever other columns there are, are hyper-parameters.

    Raises:
        SpecError: the file is not as it should be; it names file, line and column.
    """
    rows: dict[str, list[Row]] = {}
    for row in read_rows(path, _COLUMNS):
        rows.setdefault(row.text("trial"), []).append(row)
    return tuple(_curve(trial, own) for trial, own in rows.items())


def _curve(trial: str, rows: Sequence[Row]) -> Curve:
    names = [name for name in rows[0].values if name not in _COLUMNS]
    parameters = {name: rows[0].text(name) for name in names}
    epochs: list[float] = []
    for row in rows:
        epoch = row.positive("epoch")
        if epochs and epoch <= epochs[-1]:
            raise row.error("epoch", f"{epoch:g} is not above {epochs[-1]:g}, the one before")
        for name in names:
            if row.text(name) != parameters[name]:
                message = f"{row.text(name)!r} was {parameters[name]!r} above: a trial has one"
                raise row.error(name, message)
        epochs.append(epoch)
    return Curve(
        trial=trial,
        parameters=parameters,
        epochs=tuple(epochs),
        values=tuple(row.finite("value") for row in rows),
        end_seconds=tuple(accumulate(row.positive("seconds") for row in rows)),
    )


def features(curve: Curve, curves: Sequence[Curve]) -> Mapping[str, float]:
    """Hyper-parameters as numbers: one that is a word in any curve is one of several facts."""
    found: dict[str, float] = {}
    for name, text in curve.parameters.items():
        every = {each.parameters[name] for each in curves}
        if all(_number(each) is not None for each in every):
            found[name] = _number(text) or 0.0
        else:
            found |= {f"{name}={each}": float(each == text) for each in sorted(every)}
    return found


def number_of(curve: Curve, name: str) -> float:
    """A hyper-parameter that is a number above 0.

    Raises:
        SpecError: it is none.
    """
    number = _number(curve.parameters.get(name, ""))
    if number is None or number <= 0:
        text = curve.parameters.get(name)
        said = "is no column of the curves" if text is None else f"{text!r} is no number above 0"
        raise SpecError(f"{said}, of trial {curve.trial}", name)
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
