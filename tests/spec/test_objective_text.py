from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.spec.objective_text import (
    describe_objective,
    parse_objective,
    parse_objective_text,
)

NOW_SECONDS = 1_000_000.0

FORMS = [
    ("balanced", "balanced", Objective()),
    ("cheapest", "cheapest", Objective(Preference.CHEAPEST)),
    ("fastest", {"preference": "fastest"}, Objective(Preference.FASTEST)),
    ("value_of_time=0", {"value_of_time": 0}, Objective(Preference.CHEAPEST)),
    (
        "value_of_time=40",
        {"value_of_time": 40},
        Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=40.0),
    ),
    ("deadline=2h", {"deadline": "2h"}, Objective(deadline_seconds=NOW_SECONDS + 7_200)),
    ("budget=$5", {"budget": 5}, Objective(budget_usd=Decimal(5))),
    (
        "budget=0.50, deadline=1h",
        {"budget": 0.5, "deadline": "1h"},
        Objective(deadline_seconds=NOW_SECONDS + 3_600, budget_usd=Decimal("0.5")),
    ),
    (
        "deadline=1h,after_deadline=stop,confidence=0.75",
        {"deadline": "1h", "after_deadline": "stop", "confidence": 0.75},
        Objective(
            deadline_seconds=NOW_SECONDS + 3_600,
            confidence=0.75,
            after_deadline=AfterDeadline.STOP,
        ),
    ),
]


@pytest.mark.parametrize(("text", "value", "objective"), FORMS)
def test_text_and_mapping_mean_the_same(text: str, value: object, objective: Objective) -> None:
    assert parse_objective_text(text, NOW_SECONDS) == objective
    assert parse_objective(value, NOW_SECONDS) == objective


@pytest.mark.parametrize(
    ("text", "field", "complaint"),
    [
        ("fast", "objective", '"fast" is not an objective: write balanced, cheapest, fastest, or'),
        ("value_of_time", "objective", "a key with a value: value_of_time, deadline, budget"),
        ("", "objective", "is not an objective"),
        ("deadline=2h,budget", "objective", '"budget" has no value: write it like deadline=2h'),
        ("budget=5,budget=6", "objective", '"budget" is given twice'),
        ("deadlin=2h", "objective.deadlin", 'did you mean "deadline"?'),
        ("deadline=-2h", "objective.deadline", "neither a duration like 4h nor a time"),
        ("deadline=1970-01-01T00:00Z", "objective.deadline", "ago: write a future time"),
        ("budget=0", "objective.budget", "is not an amount above $0"),
        ("value_of_time=-1", "objective.value_of_time", "is not an amount above $0"),
        ("value_of_time=nan", "objective.value_of_time", "is not an amount above $0"),
        ("budget=5,confidence=1", "objective.confidence", "must be less than 1"),
        ("budget=5,confidence=0.4", "objective.confidence", "must be at least 0.5"),
        ("budget=5,confidence=nan", "objective.confidence", "must be a number"),
        ("deadline=2h,after_deadline=go", "objective.after_deadline", "'fastest' or 'stop'"),
        ("budget=5,after_deadline=stop", "objective", "after_deadline needs a deadline"),
        ("confidence=0.8", "objective", "confidence needs a deadline or a budget"),
        ("value_of_time=5,budget=5", "objective", "value_of_time can't be combined"),
        ("preference=fastest,deadline=2h", "objective", "preference can't be combined"),
        ("preference=fastest,value_of_time=5", "objective", "preference can't be combined"),
        ("preference=value_of_time", "objective.preference", "is not an objective"),
    ],
)
def test_refusals_name_the_field_and_the_way_out(text: str, field: str, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_objective_text(text, NOW_SECONDS)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")
    assert complaint in str(refused.value)


@pytest.mark.parametrize("value", [None, 3, True, [], ["cheapest"], {"budget": [5]}])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"^objective"):
        parse_objective(value, NOW_SECONDS)


@given(st.text(max_size=40) | st.from_regex(r"(deadline|budget)=[^,]{0,10}", fullmatch=True))
def test_any_text_is_an_objective_or_a_refusal(text: str) -> None:
    try:
        objective = parse_objective_text(text, NOW_SECONDS)
    except SpecError as refused:
        assert refused.field is not None
    else:
        assert describe_objective(objective, NOW_SECONDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("balanced", "balanced"),
        ("cheapest", "cheapest"),
        ("value_of_time=40", "value of time $40/h"),
        ("deadline=3h12m", "deadline in 3h12m"),
        ("budget=1250.50", "budget $1,250.50"),
        ("deadline=2d4h,budget=500", "deadline in 2d4h, budget $500"),
    ],
)
def test_objectives_as_tables_show_them(text: str, words: str) -> None:
    assert describe_objective(parse_objective_text(text, NOW_SECONDS), NOW_SECONDS) == words


def test_a_missed_deadline_says_what_comes_then() -> None:
    objective = parse_objective_text("deadline=1h,after_deadline=fastest", NOW_SECONDS)
    words = describe_objective(objective, NOW_SECONDS + 3_900)
    assert words == "deadline missed by 5m, then fastest"
