"""Parsing of objectives in files and options, and their words in tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.text import quoted
from autoscaler.spec.forms import Form, Problem, problems_of, refusal, short_for
from autoscaler.spec.quantities import (
    Amount,
    MomentText,
    MoneyText,
    format_duration,
    format_money,
    parse_moment,
    parse_money,
)

NO_BUDGET: Final = "none"
_ZERO_USD = re.compile(r"\$?0+(\.0*)?")
_PREFERENCES = tuple(word for word in Preference if word is not Preference.VALUE_OF_TIME)


def _require_preference(value: object) -> object:
    if value not in list(_PREFERENCES):
        words = ", ".join(_PREFERENCES)
        raise ValueError(
            f"{quoted(value)} is not an objective: write {words}, "
            "or a key with a value: value_of_time, deadline, budget"
        )
    return value


def _parse_budget(value: object) -> Decimal | None:
    return None if str(value).strip().lower() == NO_BUDGET else parse_money(str(value))


def _parse_value_of_time(value: object) -> Decimal:
    return Decimal(0) if _ZERO_USD.fullmatch(str(value).strip()) else parse_money(str(value))


def _parse_deadline(value: object, info: ValidationInfo) -> float:
    assert info.context is not None, "deadlines are validated with the present time"
    return parse_moment(str(value), info.context["now_seconds"])


class ObjectiveForm(Form):
    """Form of an objective as a mapping. Validated with ``context={"now_seconds": ...}``."""

    preference: Annotated[Preference, BeforeValidator(_require_preference)] = Preference.BALANCED
    value_of_time: (
        Annotated[
            Decimal,
            BeforeValidator(
                _parse_value_of_time,
                json_schema_input_type=Annotated[float, Field(ge=0, lt=1e9)] | MoneyText,
            ),
        ]
        | None
    ) = None
    deadline: (
        Annotated[float, BeforeValidator(_parse_deadline, json_schema_input_type=MomentText)]
        | None
    ) = None
    budget: Annotated[
        Decimal | None,
        BeforeValidator(
            _parse_budget, json_schema_input_type=Amount | Literal["none"] | MoneyText
        ),
    ] = None
    confidence: Annotated[float, Field(ge=0.5, lt=1, allow_inf_nan=False)] = 0.9
    after_deadline: AfterDeadline = AfterDeadline.BALANCED

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        given = self.model_fields_set
        if self.budget is None:  # `budget: none` is allowed with every objective
            given = given - {"budget"}
        if "after_deadline" in given and "deadline" not in given:
            raise ValueError("after_deadline needs a deadline: set one, or leave it out")
        if "confidence" in given and not given & {"deadline", "budget"}:
            raise ValueError("confidence needs a deadline or a budget: set one, or leave it out")
        deciding = [key for key in ("preference", "value_of_time") if key in given]
        if len(deciding) > 1 or (deciding and given & {"deadline", "budget"}):
            raise ValueError(
                f"{deciding[0]} can't be combined: a deadline, a budget or a value of time "
                "each set the trade-off of money against time; leave one of them out"
            )
        return self

    def objective(self) -> Objective:
        """Return the objective as a domain object; a value of time of 0 becomes `cheapest`."""
        value_of_time = self.value_of_time
        is_uncapped = "budget" in self.model_fields_set and self.budget is None
        if value_of_time == 0:
            return Objective(Preference.CHEAPEST, is_uncapped=is_uncapped)
        return Objective(
            preference=self.preference if value_of_time is None else Preference.VALUE_OF_TIME,
            value_of_time_usd_per_hour=None if value_of_time is None else float(value_of_time),
            deadline_seconds=self.deadline,
            budget_usd=self.budget,
            confidence=self.confidence,
            after_deadline=self.after_deadline,
            is_uncapped=is_uncapped,
        )


ShortObjective = Annotated[ObjectiveForm, short_for("preference", Preference | ObjectiveForm)]


class _OneObjective(Form):
    objective: ShortObjective


def parse_objective(value: object, now_seconds: float) -> Objective:
    """Parse an objective of a job file: a word or a mapping.

    Args:
        value: for example ``"cheapest"`` or ``{"deadline": "4h", "budget": 20}``.
        now_seconds: seconds since the Unix epoch, from which durations count.

    Raises:
        SpecError: the value is not an objective; the message lists valid ones.
    """
    try:
        form = _OneObjective.model_validate(
            {"objective": value}, context={"now_seconds": now_seconds}
        )
    except ValidationError as error:
        problems = problems_of(error, _OneObjective)
        if not isinstance(value, Mapping):
            problems = [Problem(("objective",), problem.message) for problem in problems]
        raise refusal(problems) from error
    return form.objective.objective()


def parse_objective_text(text: str, now_seconds: float) -> Objective:
    """Parse an objective text: ``cheapest``, ``deadline=2h`` or ``budget=5,deadline=1h``.

    Raises:
        SpecError: the text is not an objective; the message lists valid ones.
    """
    if "=" not in text:
        return parse_objective(text.strip(), now_seconds)
    mapping: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key in mapping:
            problem = "is given twice" if equals else "has no value: write it like deadline=2h"
            raise refusal([Problem(("objective",), f"{quoted(key)} {problem}")])
        mapping[key] = value
    return parse_objective(mapping, now_seconds)


def describe_objective(objective: Objective, now_seconds: float) -> str:
    """Return words such as ``value of time $40/h`` or ``deadline in 3h12m, budget $500``.

    A default budget of the deployment is added at the end: ``balanced, at most $50``.
    """
    words = _describe_without_default(objective, now_seconds)
    if objective.cap_usd is None:
        return words
    return f"{words}, at most {format_money(objective.cap_usd)}"


def default_budget_words(objective: Objective) -> str | None:
    """Return words for the deployment's default budget; None if the objective has none."""
    if objective.cap_usd is None:
        return None
    return (
        f"default budget of this deployment: {format_money(objective.cap_usd)}; write "
        "objective: {budget: none} to remove it"
    )


def _describe_without_default(objective: Objective, now_seconds: float) -> str:
    parts = []
    if objective.deadline_seconds is not None:
        parts.append(_describe_deadline(objective, objective.deadline_seconds - now_seconds))
    if objective.budget_usd is not None:
        parts.append(f"budget {format_money(objective.budget_usd)}")
    if parts:
        return ", ".join(parts)
    if objective.value_of_time_usd_per_hour is not None:
        return f"value of time {format_money(objective.value_of_time_usd_per_hour)}/h"
    return objective.preference.value


def _describe_deadline(objective: Objective, left_seconds: float) -> str:
    if left_seconds > 0:
        return f"deadline in {format_duration(left_seconds)}"
    missed_by = format_duration(-left_seconds)
    return f"deadline missed by {missed_by}, then {objective.after_deadline.value}"
