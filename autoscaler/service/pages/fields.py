"""Values of forms of jobs: objective, bounds, priority. Pure; errors name the field."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.text import quoted
from autoscaler.spec.objective_text import parse_objective
from autoscaler.spec.quantities import format_duration, parse_money, parse_priority
from autoscaler.wire.messages import Change

VALUE_OF_TIME: Final = "value_of_time"
TERMS: Final = "terms"
"""Choice of the form that means a deadline, a budget, or both."""

OBJECTIVES: Final = (
    ("balanced", "Balanced"),
    ("cheapest", "Cheapest"),
    ("fastest", "Fastest"),
    (VALUE_OF_TIME, "An hour of waiting is worth …"),
    (TERMS, "Deadline, budget, or both"),
)
SHOWN_DEADLINE: Final = "shown_deadline"
"""Hidden field of a form with the time left to the deadline when the form was made."""

_MOST_DIGITS: Final = 9


def objective_of(
    fields: Mapping[str, str], now_seconds: float, present: Objective | None = None
) -> Objective:
    """Return the objective of a form that showed `present`; None: it showed none.

    Raises:
        SpecError: a value can't be used, or was written for another choice.
    """
    choice = fields.get("objective", "balanced")
    _require_counted(fields, choice, present)
    mapping: dict[str, str] = {}
    if choice == VALUE_OF_TIME:
        mapping["value_of_time"] = fields.get("value_of_time", "")
    elif choice != TERMS:
        mapping["preference"] = choice
    for key in ("deadline", "budget"):
        value = fields.get(key, "")
        if value and (choice == TERMS or (key, value.lower()) == ("budget", "none")):
            mapping[key] = value
    if not mapping:
        raise SpecError("write a deadline, a budget, or both", "objective.deadline")
    return _with_rules(parse_objective(mapping, now_seconds), present)


def _require_counted(fields: Mapping[str, str], choice: str, present: Objective | None) -> None:
    """Check that each value that a person wrote into a form counts with the choice.

    A value of the present objective stays in the form under another choice, and is dropped.
    """
    shown = {} if present is None else objective_fields(present, 0.0)
    for name, wanted in (("value_of_time", VALUE_OF_TIME), ("deadline", TERMS), ("budget", TERMS)):
        value = fields.get(name, "")
        counts = choice == wanted or (name, value.lower()) == ("budget", "none")
        if value and not counts and not shown.get(name):
            label = dict(OBJECTIVES)[wanted].removesuffix(" …")
            raise SpecError(
                f'{quoted(value)} counts with the choice "{label}" only: choose that, or empty '
                "this field",
                f"objective.{name}",
            )


def _with_rules(objective: Objective, present: Objective | None) -> Objective:
    """Return an objective with the confidence and the rule after a deadline of the present one."""
    has_deadline = objective.deadline_seconds is not None
    if present is None or not (has_deadline or objective.budget_usd is not None):
        return objective
    after = present.after_deadline if has_deadline else objective.after_deadline
    return replace(objective, confidence=present.confidence, after_deadline=after)


def bounds_of(fields: Mapping[str, str], bounds: InstanceBounds) -> InstanceBounds:
    """Return the bounds of a form; its other values are those of `bounds`.

    Raises:
        SpecError: a number can't be used.
    """
    minimum = _count(fields, "minimum", bounds.minimum)
    maximum = _count(fields, "maximum", bounds.maximum)
    return replace(bounds, minimum=minimum, maximum=maximum)


def change_of(fields: Mapping[str, str], spec: JobSpec, now_seconds: float) -> Change:
    """Return the change that a form makes to a job; equal values change nothing.

    Raises:
        SpecError: a value can't be used.
    """
    objective = _changed_objective(fields, spec.objective, now_seconds)
    bounds = bounds_of(fields, spec.instances)
    priority = priority_of(fields, spec.priority)
    return Change(
        objective,
        None if bounds == spec.instances else bounds,
        None if priority == spec.priority else priority,
    )


def _changed_objective(
    fields: Mapping[str, str], present: Objective, now_seconds: float
) -> Objective | None:
    """Return the objective of a form that showed `present`; None: it is the same.

    A time left that is as the form showed it keeps the moment of the deadline.
    """
    shown = objective_fields(present, now_seconds)
    keeps_deadline = (
        present.deadline_seconds is not None
        and SHOWN_DEADLINE in fields
        and fields.get("deadline") == fields[SHOWN_DEADLINE]
    )
    if keeps_deadline:
        fields = {**fields, "deadline": shown["deadline"]}
    _require_counted(fields, fields.get("objective", "balanced"), present)
    if _text_of(fields) == _text_of(shown):
        return None
    objective = objective_of(fields, now_seconds, present)
    if keeps_deadline and objective.deadline_seconds is not None:
        return replace(objective, deadline_seconds=present.deadline_seconds)
    return objective


def priority_of(fields: Mapping[str, str], priority: float) -> float:
    """Return the priority of a form; `priority` if it has none.

    Raises:
        SpecError: the priority can't be used.
    """
    text = fields.get("priority", "")
    try:
        return parse_priority(text) if text else priority
    except ValueError as error:
        raise SpecError(str(error), "priority") from None


def amount_of(fields: Mapping[str, str], name: str) -> Decimal:
    """Return an amount of a form, in US dollars.

    Raises:
        SpecError: it is no amount.
    """
    try:
        return parse_money(fields.get(name, ""))
    except ValueError as error:
        raise SpecError(str(error), name) from None


def command_of(text: str) -> tuple[str, ...]:
    """Return the command of a form.

    Raises:
        SpecError: the quotes of the command don't match.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise SpecError(f"can't be split ({error}): check its quotes", "command") from None


def objective_fields(objective: Objective, now_seconds: float) -> dict[str, str]:
    """Return the fields of a form that show an objective."""
    is_with_terms = objective.deadline_seconds is not None or objective.budget_usd is not None
    value = objective.value_of_time_usd_per_hour
    left_seconds = (objective.deadline_seconds or 0.0) - now_seconds
    return {
        "objective": TERMS if is_with_terms else str(objective.preference),
        "value_of_time": "" if value is None else f"{value:g}",
        "deadline": (
            "" if objective.deadline_seconds is None else format_duration(max(left_seconds, 1.0))
        ),
        "budget": _budget_text(objective),
    }


def job_fields(spec: JobSpec, now_seconds: float) -> dict[str, str]:
    """Return the fields of a form that show a job."""
    return {
        **objective_fields(spec.objective, now_seconds),
        "name": spec.name,
        "command": shlex.join(spec.command),
        "minimum": str(spec.instances.minimum),
        "maximum": str(spec.instances.maximum),
        "priority": f"{spec.priority:g}",
    }


@dataclass(frozen=True, slots=True)
class FormError:
    """Error of a form, with the name of its input; empty: of none."""

    text: str
    name: str


_INPUTS: Final = {
    "instances.min": "minimum",
    "instances.max": "maximum",
    "instances": "maximum",
    "objective.deadline": "deadline",
    "objective.budget": "budget",
    "budget_usd": "budget",
    "objective.value_of_time": "value_of_time",
}


def form_error(error: Exception) -> FormError:
    """Return an error as a form shows it."""
    if not isinstance(error, SpecError) or error.field is None:
        return FormError(str(error), "")
    return FormError(str(error), _INPUTS.get(error.field, error.field))


def _budget_text(objective: Objective) -> str:
    if objective.is_uncapped:
        return "none"
    return "" if objective.budget_usd is None else str(objective.budget_usd)


def _text_of(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fields of an objective, to compare them."""
    choice = fields.get("objective", "")
    names = ["budget"] if choice != TERMS else ["deadline", "budget"]
    if choice == VALUE_OF_TIME:
        names.append("value_of_time")
    return (choice, *(fields.get(name, "") for name in names))


def _count(fields: Mapping[str, str], name: str, present: int) -> int:
    text = fields.get(name, "")
    if not text:
        return present
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        key = {"minimum": "instances.min", "maximum": "instances.max"}[name]
        raise SpecError(f"{quoted(text)} is no whole number from 1 on", key)
    return int(text)
