from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot, StudySnapshot
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord, TrialSpeed
from autoscaler.economics.studies.speeds.step_speeds import StepSpeeds, no_faster_than
from tests.economics.cases import NOW, job
from tests.economics.studies.cases import offer

ONE, TWO = Allocation("gpu", 1, 1), Allocation("gpu", 2, 1)
# Of all trials here a unit of progress is so many examples.
EXAMPLES = 1000.0


def trial(
    number: int,
    batch: int,
    step_seconds: float,
    tells: float | None = None,
    adaptive: bool = False,
) -> tuple[JobSnapshot, TrialRecord, tuple[StepObservation, ...]]:
    """One that times steps on one device and on two, and has told of so many seconds a unit."""
    name = f"trial-{number}"
    speeds = () if tells is None else (TrialSpeed(ONE, 2.0, 2.0 * tells),)
    own = job(name, ONE, batch=BatchBounds(batch, batch, batch, adaptive))
    steps = tuple(
        StepObservation("t4", devices, devices, batch, 0, step_seconds / devices**0.5, 0.0, 20)
        for devices in (1, 2)
    )
    return own, TrialRecord(TrialProgress(name), NOW, ONE, speeds), steps


def paced(*trials: tuple[JobSnapshot, TrialRecord, tuple[StepObservation, ...]]) -> list[object]:
    jobs, records, steps = zip(*trials, strict=True)
    of = {own.id: timed for own, timed in zip(jobs, steps, strict=True)}
    study = StudySnapshot("search", StudyTerms(), records, steps=of)
    found, _ = StepSpeeds(study, [offer()]).of_alive(records, jobs)
    return [{one.size: one.work / one.seconds for one in record.speeds} for record in found]


def test_one_that_has_told_of_nothing_is_known_by_its_steps_and_its_siblings() -> None:
    """Two have told: 1,000 examples a unit. The third makes 5 examples a second."""
    known = [trial(0, 10, 1.0, tells=100.0), trial(1, 20, 1.0, tells=50.0)]
    *_, third = paced(*known, trial(2, 10, 2.0))
    assert third == {ONE: pytest.approx(0.005), TWO: pytest.approx(0.005 * 2**0.5)}


def test_where_a_unit_is_not_the_same_for_all_nothing_is_taken_over() -> None:
    """Transfer no speed where a unit is, for example, a step of each trial's own batch."""
    known = [trial(0, 10, 1.0, tells=100.0), trial(1, 20, 1.0, tells=100.0)]
    first, _, third = paced(*known, trial(2, 10, 2.0))
    assert third == {}
    assert first == {ONE: pytest.approx(0.01)}


def test_one_witness_is_none_and_a_batch_that_changes_says_nothing() -> None:
    assert paced(trial(0, 10, 1.0, tells=100.0), trial(1, 10, 1.0))[1] == {}
    known = [trial(0, 10, 1.0, tells=100.0), trial(1, 20, 1.0, tells=50.0)]
    assert paced(*known, trial(2, 10, 2.0, adaptive=True))[2] == {}


def test_what_was_told_of_with_a_pause_in_it_is_outvoted() -> None:
    known = [trial(n, 10, 1.0, tells=100.0) for n in range(3)]
    *_, paused = paced(*known, trial(3, 10, 1.0, tells=900.0))
    assert paused[ONE] == pytest.approx(0.01)


def test_of_one_that_has_ended_sizes_are_known_that_it_has_not_told_of() -> None:
    _, record, steps = trial(0, 10, 1.0, tells=100.0)
    study = StudySnapshot("search", StudyTerms(), (record,), steps={record.stands.job: steps})
    (found,) = StepSpeeds(study, [offer()]).of_ended([record])
    assert {one.size: one.work / one.seconds for one in found.speeds}[TWO] == pytest.approx(
        0.01 * 2**0.5
    )


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=24), st.floats(0.005, 200.0))
def test_who_is_silent_is_no_faster(rates: list[float], most: float) -> None:
    """Keep the order of trials by speed in every draw."""
    draws = np.array(rates)
    slower = no_faster_than(draws, most)
    assert slower.shape == draws.shape
    assert (slower <= most).all()
    assert (slower <= draws).all() or (draws > most).all() or (slower[draws > most] <= most).all()
    assert (np.diff(slower[np.argsort(draws, kind="stable")]) >= 0).all()
