"""Fleets for pages: stores and states of controllers at a moment of a simulation, or made up.

A simulated fleet has real decisions, models and bills of the real controller on a virtual clock.
Large fleets are copies of the jobs of a simulated one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from unittest import mock

from autoscaler.cli.simulate.market import read_market
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.controller.budgets.accounts import BudgetStanding
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.offers.market import ProviderState
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import CloudInstance, CloudState, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.report import ReportOrigin, TrainingReport
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import read_profiles
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation"
START_SECONDS = 1_795_680_000.0  # 2026-11-26 08:00:00 UTC


@dataclass(frozen=True)
class SimulatedJob:
    """Job of a fleet, submitted `at_seconds` after the start."""

    name: str
    application: str
    at_seconds: float
    objective: Objective
    devices: int = 2
    batch: int = 256
    person: str = "owner"
    team: str | None = None


@dataclass
class FleetState:
    """Store, state and clock of a controller, in place of a `World`."""

    store: Store
    status: ControllerStatus
    clock: VirtualClock
    settings: ControllerSettings = field(default_factory=ControllerSettings)

    @property
    def controller(self) -> FleetState:
        """The controller, of which pages need the status alone."""
        return self

    def tick(self, times: int = 1) -> None:
        """Do nothing: the state is that of one moment."""

    def budget_standings(self, now_seconds: float) -> tuple[BudgetStanding, ...]:
        """Return nothing: the fleet has no budgets of people and teams."""
        return ()


class _Paused(Simulation):
    """Simulation that pauses at a moment."""

    until_seconds = 0.0

    def _has_more_to_do(self) -> bool:
        return self._clock.now() < self.until_seconds and super()._has_more_to_do()

    def _next_seconds(self) -> float:
        return min(super()._next_seconds(), self.until_seconds)


def simulated_fleet(jobs: Sequence[SimulatedJob], seconds: float) -> FleetState:
    """Return the state of a fleet `seconds` after its start."""
    market = read_market(SimulateOptions(offers=EXAMPLE / "offers.yaml"))
    profiles = read_profiles(EXAMPLE / "profiles")
    objectives = {START_SECONDS + job.at_seconds: job.objective for job in jobs}
    scenario = Scenario(
        arrivals=tuple(
            Arrival(
                job.name, START_SECONDS + job.at_seconds, job.application, job.devices, job.batch
            )
            for job in jobs
        ),
        profiles=profiles,
        equipment=market.equipment,
        objective=lambda now_seconds: objectives[now_seconds],
        instances=InstanceBounds(maximum=16),
        training=TrainingSettings(pause_seconds=30.0, seed=1),
    )
    clock, store = VirtualClock(START_SECONDS), memory_store()
    policy = TimedPolicy(create_policy("marginal"), SystemClock())
    settings = SimulatedSettings(offers=market.offers, limits=market.limits, seed=1)
    cloud = SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())
    simulation = _Paused(scenario, store, cloud, policy, clock)
    simulation.until_seconds = START_SECONDS + seconds
    with _losses(store):
        simulation.run()
    _count_time(store, clock.now())
    return FleetState(store, simulation._controller.status, clock)


@contextmanager
def _losses(store: Store) -> Iterator[None]:
    """Let all reports have a made-up loss, as simulated trainings have none."""
    add = store.reports.add

    def add_with_loss(
        job: str, report: TrainingReport, origin: ReportOrigin, now_seconds: float
    ) -> bool:
        share = report.progress_examples / (report.total_examples or 1e6)
        ripple = 0.03 * math.sin(report.step / 7.0) + 0.02 * math.sin(report.step / 3.1)
        loss = 0.9 + 2.4 * math.exp(-4.0 * share) + ripple
        return add(job, replace(report, metrics={"loss": loss}), origin, now_seconds)

    with mock.patch.object(store.reports, "add", add_with_loss):
        yield


def _count_time(store: Store, now_seconds: float) -> None:
    """Count the time of all instances, of which simulated agents report nothing."""
    for job in store.jobs.all():
        for held in store.instances.of_job(job.id, include_ended=True):
            if held.launched_seconds is None:
                continue
            until_seconds = held.ended_seconds or now_seconds
            trained_seconds = held.training_seconds or until_seconds
            boot_seconds = max(trained_seconds - held.launched_seconds, 0.0)
            trained = max(until_seconds - trained_seconds, 0.0)
            pause_seconds = min(30.0, trained)
            use = TimeUse(trained - pause_seconds, boot_seconds, pause_seconds=pause_seconds)
            count = TimeCount(held.launched_seconds, use, CostCategory.USEFUL)
            store.time_uses.count(held.id, job.id, count, held.launched_seconds)


def usual_jobs() -> tuple[SimulatedJob, ...]:
    """Return five jobs with the objectives that people state."""
    value = Preference.VALUE_OF_TIME
    deadline = Objective(deadline_seconds=START_SECONDS + 3 * 3600)
    return (
        SimulatedJob("chargpt", "words", 0, Objective(value, 40.0)),
        SimulatedJob("birds", "pictures", 300, deadline),
        SimulatedJob("captions", "words", 900, Objective(budget_usd=Decimal(60))),
        SimulatedJob("satellites", "pictures", 2400, Objective(value, 60.0)),
        SimulatedJob("ct-scans", "pictures", 3000, Objective(value, 15.0)),
    )


@cache
def usual_fleet() -> FleetState:
    """Return a fleet of five jobs, 55 minutes after the first one."""
    return simulated_fleet(usual_jobs(), 3300.0)


def in_trouble(fleet: FleetState) -> FleetState:
    """Return a fleet whose cloud is silent, and one of whose jobs has stalled."""
    status = replace(
        fleet.status,
        providers={fleet.status.offers[0].provider: ProviderState(is_silent=True)},
        stalls={"birds": "no step for 14 min, while 4 devices cost $3.91/h"},
        unavailable=frozenset({fleet.status.offers[0].id}),
    )
    return replace(fleet, status=status)


def one_job() -> FleetState:
    """Return a fleet with one job."""
    return simulated_fleet(usual_jobs()[:1], 1500.0)


def no_job() -> FleetState:
    """Return a fleet without jobs."""
    return simulated_fleet((), 0.0)


def many_jobs(jobs: int) -> FleetState:
    """Return a fleet of many jobs, a quarter of which wait, as copies of the usual ones."""
    usual = usual_fleet()
    status = replace(usual.status, limits=(), shadow_prices={})
    fleet = FleetState(memory_store(), status, usual.clock)
    store, now_seconds = fleet.store, fleet.clock.now()
    records = usual.store.jobs.all()
    offers = {offer.id: offer for offer in usual.status.offers}
    for number in range(jobs):
        record = records[number % len(records)]
        person = ("ada", "bob", "eve", "grace")[number % 4]
        name = f"{record.spec.name}-{number:05d}"
        spec = replace(record.spec, name=name, person=person, team=("nlp", "vision")[number % 2])
        job = store.jobs.add(spec, now_seconds - 60.0 * (jobs - number)).id
        if number % 4 == 3:
            continue
        (held,) = usual.store.instances.of_job(record.id)[:1]
        ordered = store.instances.order(
            *(job, offers[held.offer], held.devices_used, lambda instance: instance),
            now_seconds - 600,
        )
        store.instances.begin_launch(ordered.id, now_seconds - 590)
        seen = CloudInstance(
            f"i-{number:08x}",
            ordered.id,
            held.offer,
            CloudState.RUNNING,
            {},
            now_seconds - 580,
        )
        store.instances.observe_cloud(ordered.id, seen, now_seconds - 400)
        store.instances.record_node(ordered.id, InstancePhase.TRAINING, now_seconds - 300)
        store.jobs.set_phase(job, JobPhase.RUNNING, now_seconds - 300)
        if record.report is not None:
            origin = ReportOrigin(ordered.id, 1, now_seconds - 290)
            store.reports.add(job, record.report, origin, now_seconds - 5)
    return fleet
