"""Real controller and policies on a virtual clock."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.results import JobResult, Result, result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, Stuck, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.capacity import CapacityTrace
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy

SLOW, FAST = toy.offer("slow"), toy.offer("fast")
SPOT = toy.offer("slow", Purchase.SPOT, hazard=20.0)
SETTINGS = TrainingSettings(pause_seconds=2.0)
BOUNDS = InstanceBounds(maximum=4)
ARRIVALS = tuple(
    Arrival(f"toy-{number}", 100.0 * number, toy.APPLICATION, 2, 32) for number in range(4)
)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))


class Trial:
    """One simulation with its result and store."""

    def __init__(
        self,
        profiles: dict[str, Profile],
        *offers: Offer,
        policy: str = "marginal",
        objective: Objective = Objective(),
        arrivals: tuple[Arrival, ...] = ARRIVALS,
        settings: SimulatedSettings | None = None,
        seed: int = 0,
        training: TrainingSettings = SETTINGS,
        save_seconds: float | None = None,
        instances: InstanceBounds = BOUNDS,
    ) -> None:
        self.offers = {offer.id: offer for offer in offers}
        self.store: Store = memory_store()
        clock = VirtualClock()
        settings = settings or SimulatedSettings(offers=offers, seed=seed)
        self.cloud = SimulatedProvider(
            SimulatedCloud(settings, clock), self.store.settings.controller_id()
        )
        scenario = Scenario(
            arrivals=arrivals,
            profiles=profiles,
            equipment=toy.equipment(*offers),
            objective=lambda now_seconds: objective,
            instances=instances,
            training=training,
            adapts_batch=save_seconds is None,
            save_seconds=save_seconds,
        )
        timed = TimedPolicy(create_policy(policy), SystemClock())
        self.simulation = Simulation(scenario, self.store, self.cloud, timed, clock)

    def run(self) -> Result:
        run = self.simulation.run()
        return result_of("policy", 0, run, self.store, self.offers)


def progress_of(job: JobResult, profile: Profile, kinds: dict[str, str]) -> float:
    """Return the useful examples that a timeline implies, by the profile alone."""
    progress = 0.0
    for entry in job.timeline:
        if not entry.batch_size:
            continue
        placement = tuple(
            device_count for devices in entry.placement.values() for device_count in devices
        )
        device_batch = -(-entry.batch_size // (entry.gpus * (entry.accumulation + 1)))
        times = profile.step_times(kinds[next(iter(entry.placement))], placement, device_batch)
        step_seconds = times.accumulated_seconds(entry.accumulation)
        left_seconds = entry.to_s - entry.from_s
        while left_seconds > 1e-9:
            position = progress * (1 + 1e-9)  # a sum only approaches the end of an epoch
            useful = entry.batch_size * profile.efficiency(position, entry.batch_size)
            ends = [end for end in profile.epoch_end_examples if end > position]
            needed_seconds = (ends[0] - progress) / useful * step_seconds if ends else 1e-9
            lasts_seconds = min(needed_seconds, left_seconds)
            progress += lasts_seconds / step_seconds * useful
            left_seconds -= lasts_seconds
    return progress


@pytest.mark.parametrize("policy", ["marginal", "static"])
def test_all_jobs_end_all_is_given_back_and_the_bill_is_the_ledger_s(
    profiles: dict[str, Profile], policy: str
) -> None:
    trial = Trial(profiles, SLOW, FAST, policy=policy)
    result = trial.run()
    assert [job.name for job in result.jobs] == [arrival.name for arrival in ARRIVALS]
    assert all(job.phase is JobPhase.FINISHED for job in trial.store.jobs.all())
    assert trial.store.instances.alive() == ()
    assert result.totals.cost_usd == pytest.approx(float(trial.cloud.billed_usd()), abs=1e-9)
    assert sum(job.cost_usd for job in result.jobs) == pytest.approx(result.totals.cost_usd)
    for job in result.jobs:
        assert job.submitted_s < job.started_s < job.finished_s
        assert job.pause_s >= 2.0


def test_a_timeline_is_enough_to_find_every_finish(profiles: dict[str, Profile]) -> None:
    result = Trial(profiles, SLOW, FAST).run()
    profile = profiles[toy.APPLICATION]
    kinds = {offer.id: offer.device_kind for offer in (SLOW, FAST)}
    for job in result.jobs:
        assert job.timeline[-1].to_s == pytest.approx(job.finished_s)
        progress = progress_of(job, profile, kinds)
        assert progress == pytest.approx(profile.total_examples, rel=1e-6)


def test_the_same_seed_gives_the_same_run(profiles: dict[str, Profile]) -> None:
    documents = [asdict(Trial(profiles, SPOT, seed=seed).run()) for seed in (1, 1, 2)]
    jobs = [document["jobs"] for document in documents]
    assert jobs[0] == jobs[1] != jobs[2]


def test_waiting_that_is_dear_buys_more(profiles: dict[str, Profile]) -> None:
    cheap = Objective(Preference.CHEAPEST)
    fast = Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=100.0)
    slow_run = Trial(profiles, SLOW, FAST, objective=cheap, arrivals=ARRIVALS[:1]).run()
    fast_run = Trial(profiles, SLOW, FAST, objective=fast, arrivals=ARRIVALS[:1]).run()
    assert fast_run.totals.avg_jct_s < slow_run.totals.avg_jct_s
    assert fast_run.totals.cost_usd > slow_run.totals.cost_usd


def test_reclaims_are_outlived(profiles: dict[str, Profile]) -> None:
    trial = Trial(profiles, SPOT)
    result = trial.run()
    assert sum(job.restarts for job in result.jobs) > 0
    ended = [held for job in result.jobs for held in trial.store.instances.of_job(job.name, True)]
    assert any(held.reclaim_seconds is not None for held in ended)
    assert result.totals.cost_usd == pytest.approx(float(trial.cloud.billed_usd()), abs=1e-9)


def test_a_job_that_never_gets_anything_is_told(profiles: dict[str, Profile]) -> None:
    nothing = CapacityTrace(gap_seconds=600.0, counts=(0,))
    settings = SimulatedSettings(offers=(SLOW,), capacity={SLOW.id: nothing})
    trial = Trial(profiles, SLOW, arrivals=ARRIVALS[:1], settings=settings)
    with pytest.raises(Stuck, match="toy-0 has waited for a day: wait toy-0"):
        trial.run()


def test_a_workload_may_arrive_after_the_last_has_ended(profiles: dict[str, Profile]) -> None:
    late = replace(ARRIVALS[1], submitted_seconds=90_000.0)
    result = Trial(profiles, SLOW, arrivals=(ARRIVALS[0], late)).run()
    assert result.jobs[0].finished_s < 90_000.0 < result.jobs[1].started_s
    assert result.totals.gpu_hours < 10, "nothing is held in between"


def test_a_job_that_comes_after_a_day_without_any_may_wait(profiles: dict[str, Profile]) -> None:
    late = replace(ARRIVALS[1], submitted_seconds=90_000.0)
    out_for_an_hour = CapacityTrace(gap_seconds=3600.0, counts=(1,) * 25 + (0,) + (1,) * 9)
    settings = SimulatedSettings(offers=(SLOW,), capacity={SLOW.id: out_for_an_hour})
    result = Trial(profiles, SLOW, arrivals=(ARRIVALS[0], late), settings=settings).run()
    assert result.jobs[1].started_s > 93_600.0
