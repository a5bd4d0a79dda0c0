from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import (
    Failure,
    MembershipPause,
    StepObservation,
    TrainingReport,
)
from autoscaler.domain.report_rules import MOST_OBSERVATIONS, MOST_PAUSES
from autoscaler.node.outbox import Outbox, Standing, merge

TRAINING = Standing(InstancePhase.TRAINING, attempt=1, devices_used=1)
REPORT = TrainingReport(
    step=1,
    epoch=0,
    progress_examples=32.0,
    total_examples=None,
    batch=Batch(32, 32, 0),
    bounds=BatchBounds(32, 32, 32, False),
    replicas=1,
    devices=1,
    learning_rate=0.1,
    parameter_bytes=4,
)
FAILURE = Failure("job-0", 1, 1, "it raised", "Error", 3)


def observation(step_seconds: float, steps: int = 1, device_batch: int = 32) -> StepObservation:
    return StepObservation("cpu-core", 1, 1, device_batch, 0, step_seconds, 0.1, steps)


def told(step: int, *observations: StepObservation) -> TrainingReport:
    return replace(REPORT, step=step, observations=observations)


@pytest.fixture
def outbox() -> Outbox:
    outbox = Outbox("job-0")
    outbox.stand(TRAINING)
    return outbox


def test_a_report_is_the_same_until_it_is_answered(outbox: Outbox) -> None:
    outbox.add_report(told(1))
    first = outbox.next_report()
    outbox.add_report(told(2))
    outbox.add_failure(FAILURE)
    assert outbox.next_report() == first
    outbox.answered()
    second = outbox.next_report()
    assert [each.step for each in second.reports] == [2]
    assert second.failure == FAILURE


def test_what_was_told_once_is_not_told_again(outbox: Outbox) -> None:
    outbox.add_report(told(1))
    outbox.add_notes(("a note",))
    outbox.add_failure(FAILURE)
    assert outbox.next_report().notes == ("a note",)
    outbox.answered()
    again = outbox.next_report()
    assert (again.reports, again.failure, again.notes) == ((), None, ())


def test_a_failure_is_held_until_it_was_answered(outbox: Outbox) -> None:
    outbox.add_failure(FAILURE)
    assert outbox.holds_failure
    outbox.next_report()
    assert outbox.holds_failure
    outbox.answered()
    assert not outbox.holds_failure


def test_a_change_is_news_until_it_is_told(outbox: Outbox) -> None:
    assert outbox.has_news
    outbox.next_report()
    assert not outbox.has_news
    assert outbox.stand(replace(TRAINING, phase=InstancePhase.DRAINING))
    assert not outbox.stand(replace(TRAINING, phase=InstancePhase.DRAINING))
    outbox.answered()
    assert outbox.has_news
    assert outbox.next_report().phase is InstancePhase.DRAINING


def test_nothing_is_heard_before_all_is_answered(outbox: Outbox) -> None:
    outbox.next_report()
    assert not outbox.is_heard(TRAINING), "it is on its way"
    outbox.answered()
    assert outbox.is_heard(TRAINING)
    drained = replace(TRAINING, phase=InstancePhase.DRAINED)
    outbox.stand(drained)
    assert not outbox.is_heard(drained)
    outbox.add_report(told(1))
    outbox.next_report()
    outbox.answered()
    assert outbox.is_heard(drained)
    outbox.add_notes(("a note",))
    assert not outbox.is_heard(drained)


def test_of_what_was_refused_only_a_failure_is_told_again(outbox: Outbox) -> None:
    outbox.add_report(told(1))
    outbox.add_failure(FAILURE)
    outbox.next_report()
    outbox.refused()
    again = outbox.next_report()
    assert (again.reports, again.failure) == ((), FAILURE)


def test_reports_that_wait_become_one_with_all_that_was_measured() -> None:
    pause = MembershipPause("join", 0.2, 1, 2)
    earlier = replace(told(1, observation(0.5)), pauses=(pause,))
    merged = merge(earlier, told(9, observation(0.6)))
    assert merged.step == 9
    assert merged.observations == (observation(0.5), observation(0.6))
    assert merged.pauses == (pause,)


@given(st.lists(st.tuples(st.floats(0.1, 1.0), st.integers(1, 9), st.sampled_from([16, 32]))))
def test_a_long_wait_keeps_the_means_and_stays_small(
    measured: list[tuple[float, int, int]],
) -> None:
    many = tuple(observation(*each) for each in measured) * (MOST_OBSERVATIONS // 3)
    pauses = (MembershipPause("join", 0.2, 1, 2),) * (MOST_PAUSES + 5)
    merged = merge(replace(told(1, *many), pauses=pauses), told(2))
    assert len(merged.observations) <= MOST_OBSERVATIONS
    assert len(merged.pauses) == MOST_PAUSES
    for device_batch in (16, 32):
        before = [each for each in many if each.device_batch == device_batch]
        after = [each for each in merged.observations if each.device_batch == device_batch]
        assert sum(each.steps for each in after) == sum(each.steps for each in before)
        assert sum(each.steps * each.step_seconds for each in after) == pytest.approx(
            sum(each.steps * each.step_seconds for each in before)
        )
