"""Restartable jobs on a virtual clock: the real controller restarts them, and prices restarts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Purchase
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.results import JobResult, Result
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.repositories.measurements import RESTART_DURATION, SAVE_INTERVAL_DURATION
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy
from tests.simulator.test_simulation import SLOW, SPOT, Trial

PAUSE_SECONDS = 40.0
SAVE_SECONDS = 60.0
ONE = (Arrival("toy-0", 0.0, toy.APPLICATION, 2, 256),)
FASTEST = Objective(Preference.FASTEST)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))


def trial_of(profiles: dict[str, Profile], pause_seconds: float = PAUSE_SECONDS) -> Trial:
    """Return a trial of one job whose model is small, so that more instances are faster."""
    return Trial(
        profiles,
        SLOW,
        arrivals=ONE,
        objective=FASTEST,
        training=TrainingSettings(pause_seconds=pause_seconds, parameter_bytes=100_000),
        save_seconds=SAVE_SECONDS,
    )


def reasons_of(trial: Trial, job: str) -> list[str]:
    return [entry.decision.reason for entry in trial.store.journal.decisions(job, 50)]


def only_job(result: Result) -> JobResult:
    (job,) = result.jobs
    return job


def test_a_job_is_resized_after_a_checkpoint_and_pays_the_pause(
    profiles: dict[str, Profile],
) -> None:
    trial = trial_of(profiles)
    job = only_job(trial.run())
    (record,) = trial.store.jobs.all()
    assert record.phase is JobPhase.FINISHED
    events = [
        event for event in trial.store.events.latest(record.id, 999) if event.kind == "restart"
    ]
    assert len(events) == job.restarts + 1, [event.text for event in events]
    sizes = {entry.instances for entry in job.timeline}
    assert max(sizes) > 1, "it grew"
    assert job.pause_s >= PAUSE_SECONDS * (job.restarts + 1) - 1.0
    grown = next(text for text in reasons_of(trial, record.id) if text.startswith("grow"))
    assert "restarts all instances, 38 s without progress" in grown, "as measured at the start"
    durations = trial.store.measurements.durations(record.id)
    assert durations[None, RESTART_DURATION].seconds == pytest.approx(PAUSE_SECONDS, abs=2.0)
    assert durations[None, SAVE_INTERVAL_DURATION].seconds == pytest.approx(SAVE_SECONDS, abs=2.0)


def test_a_longer_pause_makes_fewer_restarts(profiles: dict[str, Profile]) -> None:
    restarts = [
        only_job(trial_of(profiles, seconds).run()).restarts for seconds in (1.0, 40.0, 2000.0)
    ]
    assert restarts[0] > restarts[1] > restarts[2] == 0, "a change pays for its restart"


def test_reclaims_repeat_at_most_an_interval_each(profiles: dict[str, Profile]) -> None:
    trial = Trial(
        profiles,
        SPOT,
        arrivals=ONE,
        objective=FASTEST,
        settings=SimulatedSettings(offers=(SPOT,), seed=3),
        training=TrainingSettings(pause_seconds=PAUSE_SECONDS),
        save_seconds=SAVE_SECONDS,
        instances=InstanceBounds(1, 2),
    )
    job = only_job(trial.run())
    (record,) = trial.store.jobs.all()
    assert record.phase is JobPhase.FINISHED
    assert job.restarts >= 1, "instances were reclaimed"
    assert job.pause_s >= PAUSE_SECONDS * job.restarts
    assert trial.store.instances.alive() == ()


@pytest.mark.parametrize("save_seconds", [None, 600.0])
def test_no_job_uses_a_reservation_beyond_its_end(
    profiles: dict[str, Profile], save_seconds: float | None
) -> None:
    end_seconds = 400.0
    reserved = toy.offer("fast", Purchase.RESERVED)
    own = replace(reserved, usd_per_hour=Decimal(0), until_seconds=end_seconds)
    trial = Trial(profiles, own, SPOT, save_seconds=save_seconds)
    trial.run()
    used = [
        held.ended_seconds
        for job in trial.store.jobs.all()
        for held in trial.store.instances.of_job(job.id, include_ended=True)
        if held.offer == own.id
    ]
    assert used
    assert all(seconds is not None and seconds <= end_seconds for seconds in used)
