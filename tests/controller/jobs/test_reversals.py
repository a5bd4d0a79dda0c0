from __future__ import annotations

import pytest

from autoscaler.controller.jobs.reversals import Reversals, is_look
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Action, Decision
from tests.economics.cases import job, model, offer

ONE, TWO = Allocation("small", 1, 1), Allocation("small", 2, 1)
LARGE = Allocation("large", 1, 2)


def decided(action: Action, current: Allocation, target: Allocation) -> Decision:
    return Decision("job", action, current, target, "")


def test_a_change_taken_back_has_lasted_until_then() -> None:
    reversals = Reversals()
    assert reversals.note(decided(Action.GROW, ONE, TWO), 10.0) is None
    assert reversals.note(decided(Action.GROW, ONE, TWO), 11.0) is None, "decided once more"
    assert reversals.note(decided(Action.HOLD, TWO, TWO), 15.0) is None
    assert reversals.note(decided(Action.SHRINK, TWO, ONE), 30.0) == 20.0
    assert reversals.note(decided(Action.GROW, ONE, TWO), 37.0) == 7.0


def test_going_further_takes_nothing_back() -> None:
    reversals = Reversals()
    three = Allocation("small", 3, 1)
    assert reversals.note(decided(Action.GROW, ONE, TWO), 0.0) is None
    assert reversals.note(decided(Action.GROW, TWO, three), 5.0) is None


def test_a_move_is_taken_back_by_a_move_to_where_it_came_from() -> None:
    reversals = Reversals()
    assert reversals.note(decided(Action.MOVE, TWO, LARGE), 0.0) is None
    assert reversals.note(decided(Action.MOVE, LARGE, Allocation("other", 1, 1)), 4.0) is None
    assert reversals.note(decided(Action.MOVE, Allocation("other", 1, 1), LARGE), 9.0) == 5.0


def test_leaving_a_size_that_was_only_looked_at_takes_nothing_back() -> None:
    reversals = Reversals()
    reversals.note(decided(Action.MOVE, TWO, LARGE), 0.0, is_look=lambda: True)
    assert reversals.note(decided(Action.MOVE, LARGE, TWO), 40.0) is None
    assert reversals.note(decided(Action.MOVE, TWO, LARGE), 90.0) == 50.0, "it was measured then"


@pytest.mark.parametrize(
    ("target", "is_one"), [(TWO, False), (LARGE, True), (Allocation("small", 9, 1), True)]
)
def test_a_look_is_at_a_size_that_was_not_measured(target: Allocation, is_one: bool) -> None:
    looker = job(models={"core": model(), "gpu": model(kind="gpu", measured=())})
    offers = (offer("small"), offer("large", devices=2, kind="gpu"))
    assert is_look(decided(Action.MOVE, ONE, target), looker, offers) is is_one


def test_what_never_came_about_is_not_taken_back() -> None:
    reversals = Reversals()
    assert reversals.note(decided(Action.GROW, ONE, TWO), 0.0) is None
    assert reversals.note(decided(Action.SHRINK, ONE, Allocation("small", 1, 1)), 5.0) is None
