"""A deployment on a virtual clock: the real controller, a simulated cloud, simulated trainers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.clock import Clock, VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot, Truth
from autoscaler.policies.base import Policy
from autoscaler.simulator.agents import Equipment, SimulatedAgents
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.training import Span, Training, TrainingSettings
from autoscaler.simulator.workload import Arrival
from autoscaler.store.store import Store
from providers.simulated.provider import SimulatedProvider

# Turns of the controller at one moment: to release, drain, terminate and order takes four.
_MOST_TURNS = 8
_STUCK_SECONDS = 86400.0
_FOR_EVER_SECONDS = 1e12


class Stuck(CastorError):
    """Nothing more will happen, and some job has not ended."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated. `objective` is that of a job submitted at the time it is called with.

    Jobs adapt their batch or, not `adapts_batch`, keep to the one requested. Plans are made every
    `interval_seconds` and, with `replans_on_news`, in between. `of_application` are settings that
    take the place of `training`.
    """

    arrivals: tuple[Arrival, ...]
    profiles: Mapping[str, Profile]
    equipment: Mapping[str, Equipment]
    objective: Callable[[float], Objective]
    instances: InstanceBounds
    training: TrainingSettings
    interval_seconds: float = 60.0
    replans_on_news: bool = True
    adapts_batch: bool = True
    of_application: Mapping[str, TrainingSettings] = field(default_factory=dict)
    fleet_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """One job as it ran."""

    arrival: Arrival
    job: str
    finished_seconds: float
    starts: int
    spans: tuple[Span, ...]

    @property
    def started_seconds(self) -> float:
        """When it first held something that it could train on."""
        return self.spans[0].from_seconds if self.spans else self.finished_seconds


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a scenario; `decision_seconds` is the real time that each plan took."""

    jobs: tuple[Ran, ...]
    ended_seconds: float
    decision_seconds: tuple[float, ...]


class TimedPolicy:
    """A policy, and how long each of its plans took by `stopwatch`."""

    def __init__(self, policy: Policy, stopwatch: Clock) -> None:
        self._policy = policy
        self._stopwatch = stopwatch
        self.seconds: list[float] = []

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the policy does."""
        began_seconds = self._stopwatch.monotonic()
        plan = self._policy.plan(snapshot)
        self.seconds.append(self._stopwatch.monotonic() - began_seconds)
        return plan


class _NoLighthouses:
    def ensure(self, job: str) -> str:
        return f"simulated:{job}"

    def release(self, job: str) -> None:
        return


class _AtOnce:
    def submit(self, call: Callable[[], None]) -> object:
        call()
        return None


class Simulation:
    """One run of a scenario; `on_progress` hears of each job that has ended."""

    def __init__(
        self,
        scenario: Scenario,
        store: Store,
        cloud: SimulatedProvider,
        policy: TimedPolicy,
        clock: VirtualClock,
    ) -> None:
        self._scenario = scenario
        self._store = store
        self._cloud = cloud
        self._policy = policy
        self._clock = clock
        self._agents = SimulatedAgents(store, cloud, scenario.equipment)
        self._waiting = deque(scenario.arrivals)
        self._arrivals: dict[str, Arrival] = {}
        self._trainings: dict[str, Training] = {}
        self._ran: list[Ran] = []
        self._moved_seconds = clock.now()
        self.on_progress: Callable[[Ran], None] = lambda ran: None
        parts = ControllerParts(
            store=store,
            providers={cloud.name: cloud},
            policy=policy,
            lighthouses=_NoLighthouses(),
            workers=_AtOnce(),
            clock=clock,
            user_data=lambda held: "",
            truth=self._truth,
        )
        settings = ControllerSettings(
            replan_seconds=scenario.interval_seconds,
            replan_on_news=scenario.replans_on_news,
            listing_seconds=0.0,
            join_seconds=_FOR_EVER_SECONDS,
            silence_seconds=_FOR_EVER_SECONDS,
            keep_seconds=_FOR_EVER_SECONDS,
            fleet_usd_per_hour=scenario.fleet_usd_per_hour,
        )
        self._controller = assemble(parts, settings)

    def run(self) -> Run:
        """Let everything happen until all jobs have ended and all is given back.

        Raises:
            Stuck: some job is given nothing for a day.
            Unprofiled: a job came to train on what its profile says nothing of.
        """
        while self._waiting or self._trainings or self._store.instances.alive():
            next_seconds = self._next_seconds()
            self._agents.advance(next_seconds)
            self._clock.advance(next_seconds - self._clock.now())
            self._submit()
            self._turn()
            self._check_stuck()
        order = {arrival.name: place for place, arrival in enumerate(self._scenario.arrivals)}
        jobs = sorted(self._ran, key=lambda ran: order[ran.arrival.name])
        return Run(tuple(jobs), self._clock.now(), tuple(self._policy.seconds))

    def _next_seconds(self) -> float:
        now_seconds, interval = self._clock.now(), self._scenario.interval_seconds
        moments = [self._cloud.next_event_seconds()]
        if self._waiting:
            moments.append(self._waiting[0].submitted_seconds)
        if self._trainings or self._store.instances.alive():
            moments.append((now_seconds // interval + 1) * interval)
        soonest = min(moment for moment in moments if moment is not None)
        ends = (training.completes_before(soonest) for training in self._trainings.values())
        return max(min((end for end in ends if end is not None), default=soonest), now_seconds)

    def _submit(self) -> None:
        now_seconds = self._clock.now()
        while self._waiting and self._waiting[0].submitted_seconds <= now_seconds:
            arrival = self._waiting.popleft()
            profile = self._scenario.profiles[arrival.application]
            bounds = self._bounds(profile)
            spec = JobSpec(
                name=arrival.name,
                command=("simulated",),
                batch=self._batch(arrival, bounds),
                instances=self._scenario.instances,
                objective=self._scenario.objective(now_seconds),
                requested_devices=arrival.devices_requested,
            )
            common = self._scenario.training
            settings = self._scenario.of_application.get(arrival.application, common)
            seeded = replace(settings, seed=settings.seed + len(self._arrivals))
            job = self._store.jobs.add(spec, now_seconds).id
            self._arrivals[job] = arrival
            requested = None if self._scenario.adapts_batch else arrival.batch_size
            training = Training(profile, bounds, seeded, now_seconds, requested)
            self._trainings[job] = training
            self._agents.add(job, training)

    def _batch(self, arrival: Arrival, bounds: BatchBounds) -> BatchSpec:
        if not self._scenario.adapts_batch:
            return BatchSpec(arrival.batch_size, None, bounds.device_maximum, adaptive=False)
        return BatchSpec(bounds.initial, bounds.maximum, bounds.device_maximum, adaptive=True)

    def _truth(self, job: str) -> Truth | None:
        """Of a pool of one kind of machine; of another nothing is told."""
        training = self._trainings.get(job)
        machines = [each for each in self._scenario.equipment.values() if each.offer.shared]
        shapes = {(each.profile_kind, each.offer.devices) for each in machines}
        if training is None or len(shapes) != 1:
            return None
        total = sum(each.offer.devices for each in machines)
        return training.truth(machines[0].profile_kind, machines[0].offer.devices, total)

    def _bounds(self, profile: Profile) -> BatchBounds:
        """Batches that every kind of device on offer was profiled at."""
        kinds = {each.profile_kind for each in self._scenario.equipment.values()}
        most = min(profile.device_batches(kind, (1,))[1] for kind in kinds)
        caps = self._scenario.training.quirks.device_batches
        most = min(most, caps.get(profile.name, most))
        return BatchBounds(profile.initial_batch, profile.maximum_batch, int(most), True)

    def _turn(self) -> None:
        """Let the agents speak and the controller answer, until neither has anything to add."""
        now_seconds = self._clock.now()
        before: object = None
        for _ in range(_MOST_TURNS):
            for job in self._agents.speak(now_seconds):
                self._keep(job, now_seconds)
            self._controller.tick(now_seconds)
            alive = self._store.instances.alive()
            after = [(held.id, held.desired, held.phase) for held in alive]
            if after == before:
                break
            before = after
            if after:
                self._moved_seconds = now_seconds

    def _keep(self, job: str, now_seconds: float) -> None:
        training = self._trainings.pop(job)
        ran = Ran(self._arrivals[job], job, now_seconds, training.starts, tuple(training.spans))
        self._ran.append(ran)
        self.on_progress(ran)

    def _check_stuck(self) -> None:
        if any(training.members for training in self._trainings.values()):
            self._moved_seconds = self._clock.now()
        if not self._trainings or self._clock.now() - self._moved_seconds < _STUCK_SECONDS:
            return
        job = min(self._trainings)
        said = self._store.journal.decisions(job, 1)
        reason = said[0].decision.reason if said else "nothing was decided for it"
        raise Stuck(f"{job} has waited for a day: {reason}")
