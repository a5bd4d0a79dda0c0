from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.report import Failure, FailureCategory, FailureReason
from autoscaler.failures.consequences import CONSEQUENCES
from autoscaler.failures.retry import (
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    PROGRESS_STEPS,
    next_attempt,
)


def failure(
    attempt: int,
    signature: str = "A",
    steps: int = 100,
    during_setup: bool = False,
    instance: str = "digits-0",
) -> Failure:
    return Failure(
        instance=instance,
        attempt=attempt,
        exit_code=1,
        cause=f"the script raised {signature}",
        signature=signature,
        steps=steps,
        during_setup=during_setup,
    )


def test_the_first_failure_is_retried_soon() -> None:
    decision = next_attempt([failure(1, steps=0)], retries=3)
    assert decision.retry
    assert decision.delay_seconds == 2.0
    assert decision.reason == "retry 1 of 3 in 2 s: the script raised A"
    assert (decision.outcome, decision.cause) == ("retry 1 of 3 in 2 s", "the script raised A")


def test_memory_that_runs_out_again_at_once_is_retried_while_fewer_examples_are_taken() -> None:
    """Halve 32 examples on a device at each failure, to 8 that do not fit either."""
    history = [
        replace(failure(attempt, steps=0), device_limit=("t4", most))
        for attempt, most in enumerate((16, 8, 8), start=1)
    ]
    assert next_attempt(history[:2], retries=5).retry
    refused = next_attempt(history, retries=5)
    assert not refused.retry
    assert "the same failure came back" in refused.reason


def test_delays_double_up_to_the_longest() -> None:
    history = [failure(n) for n in range(1, 12)]
    delays = [next_attempt(history[:n], retries=20).delay_seconds for n in range(1, 12)]
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_there_are_as_many_retries_as_the_owner_allows(retries: int) -> None:
    history = [failure(n) for n in range(1, retries + 2)]
    assert all(next_attempt(history[: n + 1], retries).retry for n in range(retries))
    refused = next_attempt(history, retries)
    assert not refused.retry
    words = {
        0: "not retried, `retries` allows none",
        1: "failed after 1 retry, all that `retries` allows",
        3: "failed after 3 retries, all that `retries` allows",
    }
    assert refused.reason == f"{words[retries]}: the script raised A"


def test_the_same_failure_within_the_first_steps_is_not_retried() -> None:
    decision = next_attempt([failure(1, steps=700), failure(2, steps=5)], retries=3)
    assert not decision.retry
    assert decision.reason == (
        "not retried, the same failure came back within 5 steps: the script raised A"
    )


@pytest.mark.parametrize(
    "history",
    [
        [failure(1, steps=0), failure(2, steps=6)],
        [failure(1, "A", steps=0), failure(2, "B", steps=0)],
        [failure(1, "A", steps=0), failure(2, "B", steps=0), failure(3, "A", steps=0)],
    ],
    ids=["got further", "another failure", "not one after the other"],
)
def test_other_failures_are_retried(history: list[Failure]) -> None:
    assert next_attempt(history, retries=3).retry


def test_failures_of_one_attempt_on_several_instances_count_once() -> None:
    same_start = [failure(1, steps=0, instance=f"digits-{slot}") for slot in range(4)]
    decision = next_attempt(same_start, retries=1)
    assert decision.retry
    assert decision.delay_seconds == 2.0


def test_a_failure_that_comes_back_on_any_instance_has_come_back() -> None:
    history = [
        failure(1, "A", steps=0, instance="digits-0"),
        failure(1, "lost contact", steps=0, instance="digits-1"),
        failure(2, "lost contact again", steps=0, instance="digits-0"),
        failure(2, "A", steps=0, instance="digits-1"),
    ]
    assert not next_attempt(history, retries=3).retry


def test_setup_is_tried_twice_and_called_setup() -> None:
    history = [
        failure(1, "no wheel", steps=0, during_setup=True),
        failure(2, "no disk", steps=0, during_setup=True),
    ]
    first, second = (next_attempt(history[:n], retries=9) for n in (1, 2))
    assert first.retry
    assert first.reason == "retry 1 of 9 in 2 s: setup failed: the script raised no wheel"
    assert not second.retry
    assert "setup is tried twice at most: setup failed" in second.reason


def test_setup_is_not_retried_where_nothing_is() -> None:
    assert not next_attempt([failure(1, during_setup=True, steps=0)], retries=0).retry


def test_a_new_failure_after_much_progress_opens_a_new_count() -> None:
    history = [failure(1, "A"), failure(2, "A"), failure(3, "B", steps=PROGRESS_STEPS)]
    assert next_attempt(history, retries=2) == next_attempt([failure(3, "B")], retries=2)


def test_the_same_failure_after_much_progress_does_not() -> None:
    history = [failure(n, "A", steps=PROGRESS_STEPS) for n in (1, 2, 3)]
    assert not next_attempt(history, retries=2).retry


def test_an_empty_history_is_refused() -> None:
    with pytest.raises(ValueError, match="history is empty"):
        next_attempt([], retries=3)


failures = st.builds(
    failure,
    attempt=st.just(1),
    signature=st.sampled_from("ABC"),
    steps=st.sampled_from([0, 5, 6, 100, PROGRESS_STEPS, 50_000]),
    during_setup=st.booleans(),
)


@given(st.lists(failures, min_size=1, max_size=60), st.integers(0, 10))
def test_any_job_that_only_fails_ends(made: list[Failure], retries: int) -> None:
    """Retries are bounded whatever fails: each of three signatures opens one count at most."""
    retried = 0
    for attempt in range(1, len(made) + 1):
        history = [
            failure(n, f.signature, f.steps, f.during_setup) for n, f in enumerate(made[:attempt])
        ]
        decision = next_attempt(history, retries)
        if not decision.retry:
            assert decision.delay_seconds == 0
            break
        assert FIRST_DELAY_SECONDS <= decision.delay_seconds <= LONGEST_DELAY_SECONDS
        retried += 1
    assert retried <= 3 * retries


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (FailureReason.DIVERGED, "it would diverge again"),
        (FailureReason.OUT_OF_MEMORY, "the same examples would not fit again"),
    ],
)
def test_a_failure_that_would_come_back_is_not_retried(reason: FailureReason, words: str) -> None:
    decision = next_attempt([replace(failure(1, "NaN", steps=5000), reason=reason)], retries=3)
    assert not decision.retry
    assert decision.reason == f"not retried, {words}: the script raised NaN"


def of_category(
    attempt: int, category: FailureCategory, steps: int = 0, signature: str = "A"
) -> Failure:
    return replace(failure(attempt, signature, steps=steps), category=category)


@pytest.mark.parametrize(
    "category",
    [
        FailureCategory.SYNTAX,
        FailureCategory.IMPORT,
        FailureCategory.PERMISSION,
        FailureCategory.INPUT,
        FailureCategory.SEMANTIC,
        FailureCategory.DIVERGED,
    ],
)
def test_what_would_fail_again_starts_once(category: FailureCategory) -> None:
    decision = next_attempt([of_category(1, category, steps=4000)], retries=3)
    assert not decision.retry
    assert decision.outcome.startswith("not retried, ")


def test_a_setup_is_tried_twice_whatever_it_lacks_but_code_that_is_no_python() -> None:
    missing = replace(of_category(1, FailureCategory.IMPORT), during_setup=True)
    assert next_attempt([missing], retries=3).retry
    wrong = replace(of_category(1, FailureCategory.SYNTAX), during_setup=True)
    assert not next_attempt([wrong], retries=3).retry


@pytest.mark.parametrize(
    "category",
    [
        FailureCategory.HOST_MEMORY,
        FailureCategory.CUDA_FAILURE,
        FailureCategory.CRASH,
        FailureCategory.INVALID_MEMORY_ACCESS,
    ],
)
def test_what_may_be_the_machine_is_retried_once(category: FailureCategory) -> None:
    history = [of_category(n, category, steps=100, signature=f"A{n}") for n in (1, 2)]
    assert next_attempt(history[:1], retries=9).retry
    assert "is retried once in a row" in next_attempt(history, retries=9).reason
    network = of_category(2, FailureCategory.NETWORK, steps=100, signature="B")
    between = [history[0], network, replace(history[1], attempt=3)]
    assert next_attempt(between, retries=9).retry


@pytest.mark.parametrize("category", [FailureCategory.NETWORK, FailureCategory.COMMUNICATION])
def test_a_transient_failure_may_come_back_at_once(category: FailureCategory) -> None:
    history = [of_category(n, category) for n in (1, 2, 3, 4)]
    assert all(next_attempt(history[:n], retries=3).retry for n in (1, 2, 3))
    assert not next_attempt(history, retries=3).retry


@pytest.mark.parametrize(
    "category", [FailureCategory.BROKEN_DEVICE, FailureCategory.ENDED_FROM_OUTSIDE]
)
def test_a_broken_machine_and_an_end_from_outside_use_up_no_retries(
    category: FailureCategory,
) -> None:
    history = [of_category(n, category) for n in (1, 2, 3)]
    decisions = [next_attempt(history[:n], retries=0) for n in (1, 2, 3)]
    assert all(decision.retry for decision in decisions)
    assert [decision.delay_seconds for decision in decisions] == [2, 4, 8]
    own = [*history, of_category(4, FailureCategory.EXCEPTION, signature="B")]
    assert next_attempt(own, retries=1).outcome == "retry 1 of 1 in 2 s"


def test_one_broken_device_decides_for_the_instances_that_lost_contact() -> None:
    history = [
        replace(of_category(1, FailureCategory.COMMUNICATION), instance="digits-0"),
        replace(of_category(1, FailureCategory.BROKEN_DEVICE, signature="B"), instance="digits-1"),
    ]
    decision = next_attempt(history, retries=0)
    assert decision.retry
    assert decision.cause == "the script raised B"


def test_a_job_whose_failures_differ_each_time_ends() -> None:
    """Each failure follows much progress and opens a new count, which alone never ends."""
    history = [failure(n, f"S{n}", steps=PROGRESS_STEPS) for n in range(1, 42)]
    assert next_attempt(history[:40], retries=3).retry
    refused = next_attempt(history, retries=3)
    assert not refused.retry
    assert "has failed 41 times in all" in refused.reason


def test_a_machine_that_always_breaks_ends_the_job_too() -> None:
    history = [of_category(n, FailureCategory.BROKEN_DEVICE) for n in range(1, 12)]
    assert next_attempt(history[:10], retries=0).retry
    assert not next_attempt(history, retries=0).retry


def test_every_category_has_a_consequence() -> None:
    assert set(CONSEQUENCES) == set(FailureCategory)
