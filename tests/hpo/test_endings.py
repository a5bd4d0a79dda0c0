"""Why a study ends before its effort is made."""

from __future__ import annotations

from typing import Any, cast

import pytest

from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE, Action
from autoscaler.wire.messages import DecisionView, JobView
from hpo.endings import BudgetUsedUp, waits_for_ever


class View:
    """What is looked at of a job."""

    def __init__(self, ground: str | None, instances: tuple[object, ...] = ()) -> None:
        self.instances = instances
        self.decision = None
        if ground is not None:
            reason = "wait s-0: too dear"
            self.decision = DecisionView(1.0, "s-0", Action.WAIT, reason, None, None, {}, ground)


def waits(*views: View | None) -> bool:
    return waits_for_ever(cast(list[JobView | None], cast(Any, list(views))))


def test_for_want_of_money_it_is_said_so() -> None:
    with pytest.raises(BudgetUsedUp, match="wait s-0: too dear: give the study more"):
        waits(View(BEYOND_BUDGET), View(BEYOND_DEADLINE))


def test_for_want_of_time_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    assert waits(View(BEYOND_DEADLINE))
    assert "the study ends here: wait s-0: too dear" in caplog.text


@pytest.mark.parametrize(
    "views",
    [
        [],
        [View("study")],
        [View(None)],
        [None],
        [View(BEYOND_BUDGET), View("study")],
        [View(BEYOND_BUDGET, ("i-1",))],
        [View(BEYOND_BUDGET), None],
    ],
)
def test_as_long_as_one_may_begin_it_is_not(views: list[View | None]) -> None:
    assert not waits(*views)
