"""Parser of the arguments of `castor set`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.text import did_you_mean
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.objective_text import describe_objective, parse_objective_text
from autoscaler.spec.quantities import format_priority, parse_money, parse_priority
from autoscaler.wire.messages import Change, JobView

_FALSE, _TRUE = ("false", "no", "off", "0"), ("true", "yes", "on", "1")


_OBJECTIVE_EXAMPLES: Final[Mapping[str, str]] = {
    "balanced": "balanced",
    "budget": "budget=5",
    "cheapest": "cheapest",
    "deadline": "deadline=2h",
    "fastest": "fastest",
    "value_of_time": "value_of_time=40",
}


def parse_changes(words: Sequence[str], bounds: InstanceBounds, now_seconds: float) -> Change:
    """Parse words such as `objective=cheapest` and `max=4` into a change of a job.

    Args:
        words: arguments of the form `key=value`.
        bounds: current instance bounds; a word replaces one of them.
        now_seconds: current time, from which relative deadlines count.

    Raises:
        SpecError: a word can't be parsed; the message names it.
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
            priority = _parse_priority(value)
        elif key in _BOUND_SETTERS:
            changed = _BOUND_SETTERS[key](changed, value)
        else:
            raise SpecError(f"unknown key {key!r}: {_key_hint(key)}", "set")
    if changed.minimum > changed.maximum:
        raise SpecError(f"min={changed.minimum} is above max={changed.maximum}", "set")
    return Change(objective, changed if changed != bounds else None, priority)


def bounds_text(bounds: InstanceBounds) -> str:
    """Return the bounds of a job's instances as text: their number, offers, GPUs and spot."""
    names = (*(bounds.offers or ()), *map(str, bounds.gpus or ()))
    of_text = f" of {', '.join(names)}" if names else ""
    spot_text = "" if bounds.spot else " on demand"
    ceiling_text = f", at most {bounds.ceiling_text}" if bounds.has_ceiling else ""
    return f"{bounds.minimum} to {bounds.maximum} instances{of_text}{spot_text}{ceiling_text}"


def terms_text(job: JobView, now_seconds: float) -> str:
    """Return objective, bounds and priority of a job as text."""
    objective = describe_objective(job.objective, now_seconds)
    return f"{objective}, {bounds_text(job.bounds)}, priority {format_priority(job.priority)}"


def _key_hint(key: str) -> str:
    if key in _OBJECTIVE_EXAMPLES:
        return f"write objective={_OBJECTIVE_EXAMPLES[key]}"
    valid = ["objective", "priority", *_BOUND_SETTERS]
    return did_you_mean(key, valid, f"valid keys are {', '.join(valid)}")


def _parse_priority(value: str) -> float:
    try:
        return parse_priority(value)
    except ValueError as error:
        raise SpecError(str(error), "set priority") from error


def _parse_count(name: str, value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise SpecError(f"{value!r} must be a whole number, at least 1", f"set {name}")
    return int(value)


def _with_minimum(bounds: InstanceBounds, value: str) -> InstanceBounds:
    return replace(bounds, minimum=_parse_count("min", value))


def _with_maximum(bounds: InstanceBounds, value: str) -> InstanceBounds:
    return replace(bounds, maximum=_parse_count("max", value))


def _with_offers(bounds: InstanceBounds, value: str) -> InstanceBounds:
    if value in ("", "any"):
        return replace(bounds, offers=None)
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise SpecError(
            f"{value!r} names no offer: list offers, as a,b, or write any", "set offers"
        )
    return replace(bounds, offers=names)


def _with_gpus(bounds: InstanceBounds, value: str) -> InstanceBounds:
    if value in ("", "any"):
        return replace(bounds, gpus=None)
    try:
        return replace(bounds, gpus=parse_gpus(value.split(",")))
    except ValueError as error:
        raise SpecError(f"{error}, or any", "set gpu") from error


def _with_spot(bounds: InstanceBounds, value: str) -> InstanceBounds:
    if value.lower() not in (*_TRUE, *_FALSE):
        raise SpecError(f"{value!r} must be true or false", "set spot")
    return replace(bounds, spot=value.lower() in _TRUE)


def _parse_ceiling(key: str, value: str) -> Decimal | None:
    try:
        return None if value in ("", "none") else parse_money(value)
    except ValueError as error:
        raise SpecError(f"{error}, or none", f"set {key}") from error


def _with_ceiling(bounds: InstanceBounds, value: str) -> InstanceBounds:
    return replace(bounds, max_usd_per_hour=_parse_ceiling("max_usd_per_hour", value))


def _with_instance_ceiling(bounds: InstanceBounds, value: str) -> InstanceBounds:
    ceiling = _parse_ceiling("max_instance_usd_per_hour", value)
    return replace(bounds, max_instance_usd_per_hour=ceiling)


_BOUND_SETTERS: Mapping[str, Callable[[InstanceBounds, str], InstanceBounds]] = {
    "min": _with_minimum,
    "max": _with_maximum,
    "offers": _with_offers,
    "gpu": _with_gpus,
    "spot": _with_spot,
    "max_usd_per_hour": _with_ceiling,
    "max_instance_usd_per_hour": _with_instance_ceiling,
}
