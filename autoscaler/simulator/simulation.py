"""A deployment on a virtual clock: the real controller, a simulated cloud, simulated trainers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.clock import Clock, VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Plan
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import Snapshot, Truth
from autoscaler.policies.base import Policy
from autoscaler.simulator.agents import Equipment, SimulatedAgents
from autoscaler.simulator.exclusive import Request, exclusive_seconds
from autoscaler.simulator.first_look import first_look
from autoscaler.simulator.job_training import Span
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.reach import profiled_maxima
from autoscaler.simulator.regime_training import RegimeTraining
from autoscaler.simulator.regimes import Schedule
from autoscaler.simulator.training import Training, TrainingSettings
from autoscaler.simulator.truth import MachineKind
from autoscaler.simulator.workload import Arrival
from autoscaler.store.store import Store
from providers.simulated.provider import SimulatedProvider

# Turns of the controller at one moment: to release, drain, terminate and order takes four.
_MOST_TURNS = 8
_STUCK_SECONDS = 86400.0
# After a change of its instances a job tells so much later how it goes; real ones, which report
# every second, within about 5 s (`SwitchingCosts.measure_seconds`).
_MEASURE_SECONDS = 10.0
_FOR_EVER_SECONDS = 1e12


class Stuck(CastorError):
    """Nothing more will happen, and some job has not ended."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated. `objective` is that of a job submitted at the time it is called with.

    Jobs adapt their batch or, not `adapts_batch`, keep to the one requested. Plans are made every
    `interval_seconds` and, with `replans_on_news`, in between. Where it `remembers`, the jobs of
    an application are runs of one program. `of_application` are settings that
    take the place of `training`; a job in `regimes`, by name, goes as scheduled there. The others
    were, where the scenario `is_profiled`, measured on one device of each kind before.
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
    remembers: bool = False
    is_profiled: bool = False
    of_application: Mapping[str, TrainingSettings] = field(default_factory=dict)
    fleet_usd_per_hour: float | None = None
    regimes: Mapping[str, Schedule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ran:
    """One job as it ran; `exclusive_seconds` is what it takes alone on what it requested.

    `stopped` says why, where its objective ended it before its work was done.
    """

    arrival: Arrival
    job: str
    finished_seconds: float
    starts: int
    spans: tuple[Span, ...]
    exclusive_seconds: float | None
    stopped: str | None = None

    @property
    def started_seconds(self) -> float:
        """When it first held something that it could train on."""
        return self.spans[0].from_seconds if self.spans else self.finished_seconds


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a scenario; `decision_seconds` is the real time that each plan took.

    `failed_plans` and `solver_failures` are as in `ControllerStatus`.
    """

    jobs: tuple[Ran, ...]
    ended_seconds: float
    decision_seconds: tuple[float, ...]
    failed_plans: int = 0
    solver_failures: int = 0


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
        self._trainings: dict[str, Training | RegimeTraining] = {}
        self._maxima: dict[str, tuple[tuple[str, int], ...]] = {}
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
        status = self._controller.status
        return Run(
            jobs=tuple(jobs),
            ended_seconds=self._clock.now(),
            decision_seconds=tuple(self._policy.seconds),
            failed_plans=status.failed_plans,
            solver_failures=status.solver_failures,
        )

    def _next_seconds(self) -> float:
        now_seconds, interval = self._clock.now(), self._scenario.interval_seconds
        moments = [self._cloud.next_event_seconds()]
        if self._waiting:
            moments.append(self._waiting[0].submitted_seconds)
        if self._scenario.replans_on_news:
            moments.extend(self._first_reports(now_seconds))
        if self._trainings or self._store.instances.alive():
            moments.append((now_seconds // interval + 1) * interval)
        soonest = min(moment for moment in moments if moment is not None)
        ends = (training.completes_before(soonest) for training in self._trainings.values())
        return max(min((end for end in ends if end is not None), default=soonest), now_seconds)

    def _first_reports(self, now_seconds: float) -> Iterator[float]:
        """When jobs whose instances changed have measured how they go now, and tell it."""
        for training in self._trainings.values():
            if training.changed_seconds is not None:
                told_seconds = training.changed_seconds + _MEASURE_SECONDS
                if told_seconds > now_seconds:
                    yield told_seconds

    def _submit(self) -> None:
        now_seconds = self._clock.now()
        while self._waiting and self._waiting[0].submitted_seconds <= now_seconds:
            arrival = self._waiting.popleft()
            self._moved_seconds = now_seconds
            training = self._training(arrival)
            spec = JobSpec(
                name=arrival.name,
                command=("simulated",),
                batch=self._batch(arrival, training.bounds),
                instances=self._instances(arrival),
                objective=self._scenario.objective(now_seconds),
                requested_devices=arrival.devices_requested,
                program=arrival.application if self._scenario.remembers else None,
            )
            job = self._store.jobs.add(spec, now_seconds).id
            if self._scenario.is_profiled and arrival.name not in self._scenario.regimes:
                look = self._first_look(arrival)
                self._store.measurements.add_observations(job, look, now_seconds)
            self._arrivals[job] = arrival
            self._trainings[job] = training
            self._agents.add(job, training)

    def _instances(self, arrival: Arrival) -> InstanceBounds:
        """As the scenario has it, and of no offer more than the application was profiled on."""
        scenario, name = self._scenario, arrival.application
        bounds, profile = scenario.instances, scenario.profiles.get(name)
        if profile is None:
            return bounds
        if name not in self._maxima:
            equipment = scenario.equipment.values()
            self._maxima[name] = profiled_maxima(profile, equipment, bounds.maximum)
        return replace(bounds, maxima=(*bounds.maxima, *self._maxima[name]))

    def _first_look(self, arrival: Arrival) -> tuple[StepObservation, ...]:
        scenario = self._scenario
        settings = scenario.of_application.get(arrival.application, scenario.training)
        profile = scenario.profiles[arrival.application]
        return first_look(profile, scenario.equipment.values(), settings.slowdown)

    def _training(self, arrival: Arrival) -> Training | RegimeTraining:
        """As the job's schedule of regimes says, or its application's profile."""
        now_seconds, scenario = self._clock.now(), self._scenario
        common = scenario.of_application.get(arrival.application, scenario.training)
        settings = replace(common, seed=common.seed + len(self._arrivals))
        schedule = scenario.regimes.get(arrival.name)
        if schedule is not None:
            return RegimeTraining(schedule, arrival.batch_size, settings, now_seconds)
        profile = scenario.profiles[arrival.application]
        bounds = self._bounds(profile)
        requested = None if scenario.adapts_batch else arrival.batch_size
        training = Training(profile, bounds, settings, now_seconds, requested)
        training.exclusive_seconds = exclusive_seconds(
            profile,
            Request(arrival.devices_requested, arrival.batch_size, bounds),
            scenario.equipment,
            settings,
        )
        return training

    def _batch(self, arrival: Arrival, bounds: BatchBounds) -> BatchSpec:
        if not (self._scenario.adapts_batch and bounds.adaptive):
            batch = BatchSpec(arrival.batch_size, None, bounds.device_maximum, adaptive=False)
        else:
            batch = BatchSpec(bounds.initial, bounds.maximum, bounds.device_maximum, adaptive=True)
        return replace(batch, kind_maxima=bounds.kind_maxima)

    def _truth(self, job: str) -> Truth | None:
        """Of a pool whose kinds of device have machines of one size each; else None."""
        training = self._trainings.get(job)
        if isinstance(training, RegimeTraining):
            return training.truth()
        equipment = [each for each in self._scenario.equipment.values() if each.offer.shared]
        machines = {
            MachineKind(each.offer.device_kind, each.profile_kind, each.offer.devices)
            for each in equipment
        }
        if training is None or not machines:
            return None
        if len({each.device_kind for each in machines}) < len(machines):
            return None
        most = sum(each.offer.devices for each in equipment)
        return training.truth(sorted(machines), most)

    def _bounds(self, profile: Profile) -> BatchBounds:
        """Batches that the kinds of device on offer were profiled at."""
        caps, maxima = self._scenario.training.quirks.device_batches, dict[str, int]()
        for each in self._scenario.equipment.values():
            kind, most = each.offer.device_kind, profile.device_batches(each.profile_kind, (1,))[1]
            maxima[kind] = int(min(most, caps.get(profile.name, most), maxima.get(kind, most)))
        least = min(maxima.values())
        return BatchBounds(
            initial=profile.initial_batch,
            maximum=profile.maximum_batch,
            device_maximum=least,
            adaptive=True,
            kind_maxima=tuple(sorted(each for each in maxima.items() if each[1] > least)),
        )

    def _turn(self) -> None:
        """Let the agents speak and the controller answer, until neither has anything to add."""
        now_seconds = self._clock.now()
        moved, resized = self._standing()
        for turn in range(_MOST_TURNS):
            for job in self._agents.speak(now_seconds):
                self._keep(job, now_seconds)
            report = self._controller.tick(now_seconds)
            before, (moved, resized) = (moved, resized), self._standing()
            is_answered = bool(turn) or (resized == before[1] and not report.calls_started)
            if moved == before[0] and is_answered:
                break
        if moved:
            self._moved_seconds = now_seconds
        self._keep_stopped(now_seconds)

    def _standing(self) -> tuple[object, object]:
        """What of the instances a turn may change so that another has to follow, and what so that
        the first must not be the last."""
        alive, jobs = self._store.instances.alive(), self._store.jobs.alive()
        moved = [(held.id, held.desired, held.phase) for held in alive]
        sizes = [held.devices_used for held in alive]
        return moved, (sizes, [(job.id, job.phase, job.attempt) for job in jobs])

    def _keep_stopped(self, now_seconds: float) -> None:
        """A budget that is used up or a deadline out of reach may end a job."""
        for job in list(self._trainings):
            record = self._store.jobs.get(job)
            if record.phase is JobPhase.STOPPED:
                self._agents.forget(job)
                self._keep(job, now_seconds, record.cause or "stopped")

    def _keep(self, job: str, now_seconds: float, stopped: str | None = None) -> None:
        training = self._trainings.pop(job)
        ran = Ran(
            arrival=self._arrivals[job],
            job=job,
            finished_seconds=now_seconds,
            starts=training.starts,
            spans=tuple(training.spans),
            exclusive_seconds=training.exclusive_seconds,
            stopped=stopped,
        )
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
