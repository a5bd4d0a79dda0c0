"""Jobs that wait for a few devices of a simulated cloud, on a virtual clock.

Controller, policy and cloud are the product's; this module stands in for the agents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from numpy.random import Generator

from autoscaler.clock import VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import InlineWorkers
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import CloudState, Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.policies.base import Policy
from autoscaler.store.memory.store import memory_store
from providers.local.settings import default_catalogue
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.controller.world import RecordedLighthouses

START_SECONDS = 1_000_000.0


class _ForEver:
    """Lifetimes of spot instances that have a reclaim rate but are never reclaimed."""

    def draw_seconds(self, chance: Generator) -> float:
        return 1e12


@dataclass(frozen=True)
class Submitted:
    """Job that is submitted `after_seconds` and ends once it has run for `run_seconds`."""

    name: str
    after_seconds: float = 0.0
    run_seconds: float = 12.0
    objective: Objective = Objective()
    maximum: int = 4
    minimum: int = 1
    phase: InstancePhase = InstancePhase.STARTING


@dataclass(frozen=True)
class Ended:
    """End of a job in seconds from the start, and the number of instances launched for it."""

    after_seconds: float
    launches: int


def local_offers(boot_seconds: float) -> tuple[Offer, ...]:
    """Return the offers of `castor serve` on one machine."""
    return default_catalogue(boot_seconds)


def machines(count: int, boot_seconds: float) -> tuple[Offer, ...]:
    """Return machines of one device each that jobs share."""
    return tuple(
        replace(
            default_catalogue(boot_seconds)[0],
            id=f"machine-{number}",
            purchase=Purchase.RESERVED,
            usd_per_hour=Decimal(0),
            shared=True,
        )
        for number in range(count)
    )


class FewDevices:
    """Deployment with few devices.

    A script without a session loses its work with its instance. A training keeps its work.
    """

    def __init__(
        self, policy: Policy, offers: Sequence[Offer], devices: int, tick_seconds: float = 1.0
    ) -> None:
        self.clock = VirtualClock(START_SECONDS)
        self.store = memory_store()
        self._tick_seconds = tick_seconds
        self.is_shared = any(offer.shared for offer in offers)
        limits = () if self.is_shared else (Limit("devices", LimitUnit.DEVICES, devices),)
        spot = {offer.id: _ForEver() for offer in offers if offer.purchase is Purchase.SPOT}
        settings = SimulatedSettings(tuple(offers), limits, lifetimes=spot)
        self.cloud = SimulatedProvider(
            SimulatedCloud(settings, self.clock), self.store.settings.controller_id()
        )
        parts = ControllerParts(
            store=self.store,
            providers={self.cloud.name: self.cloud},
            policy=policy,
            lighthouses=RecordedLighthouses(),
            workers=InlineWorkers(),
            clock=self.clock,
            user_data=lambda held: "",
        )
        self._controller = assemble(parts, ControllerSettings())
        self._began_seconds: dict[str, float] = {}
        self._progress_seconds: dict[str, float] = {}
        self._reported_seconds = START_SECONDS
        self._jobs: dict[str, Submitted] = {}

    def run(self, jobs: Sequence[Submitted], most_seconds: float) -> dict[str, Ended]:
        """Run until all jobs have ended or `most_seconds` have passed; return the ended jobs."""
        waiting = sorted(jobs, key=lambda job: job.after_seconds)
        while self.passed_seconds <= most_seconds:
            while waiting and waiting[0].after_seconds <= self.passed_seconds:
                self._submit(waiting.pop(0))
            self._report_from_agents()
            self._controller.tick(self.clock.now())
            if not waiting and not self.store.jobs.alive():
                break
            self.clock.advance(self._next_seconds(waiting) - self.clock.now())
        return dict(self._ended())

    @property
    def passed_seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.now() - START_SECONDS

    def _next_seconds(self, waiting: Sequence[Submitted]) -> float:
        """Return the end of this tick, or the next event of the cloud or arrival before it."""
        event_seconds = self.cloud.next_event_seconds()
        moments = [self.clock.now() + self._tick_seconds]
        moments += [] if event_seconds is None else [event_seconds]
        moments += [START_SECONDS + job.after_seconds for job in waiting[:1]]
        return max(min(moments), math.nextafter(self.clock.now(), math.inf))

    def _submit(self, job: Submitted) -> None:
        spec = JobSpec(
            job.name,
            ("sleep", str(job.run_seconds)),
            objective=job.objective,
            instances=InstanceBounds(job.minimum, job.maximum),
            requested_devices=1 if self.is_shared else None,
        )
        self._jobs[self.store.jobs.add(spec, self.clock.now()).id] = job

    def _report_from_agents(self) -> None:
        self._train(self.clock.now() - self._reported_seconds)
        self._reported_seconds = self.clock.now()
        states = {instance.id: instance.state for instance in self.cloud.instances()}
        for held in self.store.instances.alive():
            if held.cloud_id and states.get(held.cloud_id) is CloudState.RUNNING:
                self._report_from_agent(held)

    def _report_from_agent(self, held: HeldInstance) -> None:
        job, now_seconds = self._jobs[held.job], self.clock.now()
        if held.desired is Desired.ABSENT:
            self.store.instances.record_node(held.id, InstancePhase.DRAINED, now_seconds)
            return
        ran_seconds = now_seconds - self._began_seconds.setdefault(held.id, now_seconds)
        if job.phase is InstancePhase.TRAINING:
            ran_seconds = self._progress_seconds.get(held.job, 0.0)
        is_done = ran_seconds >= job.run_seconds - 1e-6
        facts = {Fact.COMPLETE: str(now_seconds)} if is_done else {}
        self.store.instances.record_node(held.id, job.phase, now_seconds, facts)

    def _train(self, seconds: float) -> None:
        """Advance the jobs that train; their progress outlives their instances."""
        training = {
            held.job
            for held in self.store.instances.alive()
            if held.phase is InstancePhase.TRAINING and held.desired is Desired.PRESENT
        }
        for job in training:
            self._progress_seconds[job] = self._progress_seconds.get(job, 0.0) + seconds

    def lost_boots(self) -> list[HeldInstance]:
        """Return the instances that were released before their job's script was done."""
        return [
            held
            for job in self._jobs
            for held in self.store.instances.of_job(job, include_ended=True)
            if held.draining_seconds is not None and held.completed_seconds is None
        ]

    def cause_moments(self) -> list[float]:
        """Return the times at which jobs were submitted or ended."""
        records = [self.store.jobs.get(job) for job in self._jobs]
        ends = [job.ended_seconds for job in records if job.ended_seconds is not None]
        return [job.submitted_seconds for job in records] + ends

    def _ended(self) -> list[tuple[str, Ended]]:
        ended_jobs = []
        for job, submitted in self._jobs.items():
            ended_seconds = self.store.jobs.get(job).ended_seconds
            instances = self.store.instances.of_job(job, include_ended=True)
            launches = sum(held.launched_seconds is not None for held in instances)
            if ended_seconds is not None:
                ended = Ended(ended_seconds - START_SECONDS, launches)
                ended_jobs.append((submitted.name, ended))
        return ended_jobs
