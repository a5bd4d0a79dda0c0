"""Changes of a running job, as `castor set` is given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.quantities import parse_priority
from autoscaler.wire.messages import Change

_FALSE, _TRUE = ("false", "no", "off", "0"), ("true", "yes", "on", "1")


def parse_changes(words: Sequence[str], bounds: InstanceBounds, now_seconds: float) -> Change:
    """The change that words such as `objective=cheapest` and `max=4` describe.

    Raises:
        SpecError: a word can't be understood; the message names it.
    """
    objective: Objective | None = None
    priority: float | None = None
    changed = bounds
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise SpecError(f"{word!r}: write it as key=value", "set")
        if key == "objective":
            objective = parse_objective_text(value, now_seconds)
        elif key == "priority":
            priority = _priority(value)
        elif key in _BOUNDS:
            changed = _BOUNDS[key](changed, value)
        else:
            raise SpecError(f"unknown key {key!r}: {_suggestion(key)}", "set")
    if changed.minimum > changed.maximum:
        raise SpecError(f"min={changed.minimum} is above max={changed.maximum}", "set")
    return Change(objective, changed if changed != bounds else None, priority)


def _suggestion(key: str) -> str:
    known = ["objective", "priority", *_BOUNDS]
    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


def _priority(value: str) -> float:
    try:
        return parse_priority(value)
    except ValueError as error:
        raise SpecError(str(error), "set priority") from error


def _count(name: str, value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise SpecError(f"{value!r} must be a whole number from 1", f"set {name}")
    return int(value)


def _minimum(bounds: InstanceBounds, value: str) -> InstanceBounds:
    return replace(bounds, minimum=_count("min", value))


def _maximum(bounds: InstanceBounds, value: str) -> InstanceBounds:
    return replace(bounds, maximum=_count("max", value))


def _offers(bounds: InstanceBounds, value: str) -> InstanceBounds:
    if value in ("", "any"):
        return replace(bounds, offers=None)
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise SpecError(f"{value!r} names no offer: name some, or say any", "set offers")
    return replace(bounds, offers=names)


def _spot(bounds: InstanceBounds, value: str) -> InstanceBounds:
    if value.lower() not in (*_TRUE, *_FALSE):
        raise SpecError(f"{value!r} must be true or false", "set spot")
    return replace(bounds, spot=value.lower() in _TRUE)


_BOUNDS: Mapping[str, Callable[[InstanceBounds, str], InstanceBounds]] = {
    "min": _minimum,
    "max": _maximum,
    "offers": _offers,
    "spot": _spot,
}
