"""Simulation of a deployment on a virtual clock: real controller, simulated cloud and trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autoscaler.clock import Clock, VirtualClock
from autoscaler.controller.act.idle_instances import free_since_seconds, start_seconds
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.controller import Controller
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobPhase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import GroundTruth, Snapshot
from autoscaler.policies.base import Policy
from autoscaler.simulator.agents import SimulatedAgents
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.studies.driver import StudyDriver
from autoscaler.simulator.time_meters import TimeMeters
from autoscaler.simulator.training.base import JobTraining, Span
from autoscaler.simulator.workloads.arrivals import Arriving
from autoscaler.simulator.workloads.submission import SimulatedSubmission, Submitter
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.store import Store
from providers.simulated.provider import SimulatedProvider

# Most ticks of the controller at one time: to release, drain, terminate and order takes four.
_MOST_TURNS = 8
_STUCK_SECONDS = 86400.0
_GIVE_UP_SECONDS = 3600.0
# Seconds from a change of a job's instances to its next report. Real jobs report every second and
# need about 5 s (`SwitchingCosts.measure_seconds`).
_MEASURE_SECONDS = 10.0
_FOR_EVER_SECONDS = 1e12


class Stuck(CastorError):
    """Simulation in which nothing more happens although some job has not ended."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Record of one job's run.

    `exclusive_seconds` is its duration alone on the requested devices; None: unknown. `stopped` is
    the reason if its objective ended it before its work was done.
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
        """Time at which it first held instances to train on."""
        return self.spans[0].from_seconds if self.spans else self.finished_seconds


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """Outcome of a scenario; `decision_seconds` is the real time of each plan.

    `failed_plans` and `solver_failures` are as in `ControllerStatus`. `driver` is the study's, if
    there was a study.
    """

    jobs: tuple[Ran, ...]
    ended_seconds: float
    decision_seconds: tuple[float, ...]
    failed_plans: int = 0
    solver_failures: int = 0
    driver: StudyDriver | None = None


class TimedPolicy:
    """Policy that records the seconds of each of its plans by `stopwatch`."""

    def __init__(self, policy: Policy, stopwatch: Clock) -> None:
        self._policy = policy
        self._stopwatch = stopwatch
        self.plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)
        self.seconds: list[float] = []

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan, and record its time."""
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
    """One run of a scenario; `on_progress` is called with each job that ended.

    `meters` count what the time of instances is for; None: receipts are not needed.
    """

    def __init__(
        self,
        scenario: Scenario,
        store: Store,
        cloud: SimulatedProvider,
        policy: TimedPolicy,
        clock: VirtualClock,
        meters: TimeMeters | None = None,
    ) -> None:
        self._scenario = scenario
        self._store = store
        self._cloud = cloud
        self._policy = policy
        self._clock = clock
        self._agents = SimulatedAgents(store, cloud, scenario.equipment, meters)
        study = scenario.study
        self._driver = None if study is None else StudyDriver(scenario, study, store)
        self._submitters: list[Submitter] = [Arriving(scenario)]
        if self._driver is not None:
            self._submitters.append(self._driver)
        self._arrivals: dict[str, Arrival] = {}
        self._trainings: dict[str, JobTraining] = {}
        self._ran: list[Ran] = []
        self._last_change_seconds = clock.now()
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
        for budget in scenario.budgets:
            store.budgets.put(budget)

    @property
    def controller(self) -> Controller:
        """Controller of the simulated deployment."""
        return self._controller

    def run(self) -> SimulationRun:
        """Run to the scenario's end, or until all jobs have ended and all instances are released.

        Raises:
            Stuck: some job got nothing for a day.
            Unprofiled: a job got an allocation that its profile does not cover.
        """
        while self._has_more_to_do():
            next_seconds = self._next_seconds()
            self._agents.advance(next_seconds)
            self._clock.advance(next_seconds - self._clock.now())
            self._turn()
            self._check_stuck()
        order = {job: place for place, job in enumerate(self._arrivals)}
        jobs = sorted(self._ran, key=lambda ran: order[ran.job])
        status = self._controller.status
        return SimulationRun(
            jobs=tuple(jobs),
            ended_seconds=self._clock.now(),
            decision_seconds=tuple(self._policy.seconds),
            failed_plans=status.failed_plans,
            solver_failures=status.solver_failures,
            driver=self._driver,
        )

    def _has_more_to_do(self) -> bool:
        ends_seconds = self._scenario.ends_seconds
        if ends_seconds is not None and self._clock.now() >= ends_seconds:
            return False
        is_waiting = not all(submitter.is_done for submitter in self._submitters)
        return is_waiting or bool(self._trainings or self._store.instances.alive())

    def _next_seconds(self) -> float:
        now_seconds, interval = self._clock.now(), self._scenario.interval_seconds
        moments = [self._cloud.next_event_seconds()]
        moments.extend(submitter.next_seconds() for submitter in self._submitters)
        moments.extend(self._ends_of_idle(now_seconds))
        moments.extend(self._ends_of_standby(now_seconds))
        moments.extend(moment for moment in self._agents.next_seconds() if moment > now_seconds)
        if self._scenario.replans_on_news:
            moments.extend(self._first_reports(now_seconds))
        if self._trainings or self._store.instances.alive():
            moments.append((now_seconds // interval + 1) * interval)
        moments.append(self._scenario.ends_seconds)
        soonest = min(moment for moment in moments if moment is not None)
        ends = (training.completes_before(soonest) for training in self._trainings.values())
        return max(min((end for end in ends if end is not None), default=soonest), now_seconds)

    def _ends_of_idle(self, now_seconds: float) -> Iterator[float]:
        """Yield the times at which unused instances of ended trials are released."""
        for held in self._store.instances.alive() if self._driver is not None else ():
            since_seconds = free_since_seconds(held, self._store.jobs.get(held.job))
            if since_seconds is not None and since_seconds + start_seconds(held) > now_seconds:
                yield since_seconds + start_seconds(held)

    def _ends_of_standby(self, now_seconds: float) -> Iterator[float]:
        """Yield the times at which instances on standby are released."""
        for held in self._store.instances.alive():
            ends_seconds = held.standby_ends_seconds if held.stands_by else None
            if ends_seconds is not None and ends_seconds > now_seconds:
                yield ends_seconds

    def _first_reports(self, now_seconds: float) -> Iterator[float]:
        """Yield the times of the first reports of jobs whose instances changed."""
        for training in self._trainings.values():
            if training.changed_seconds is not None:
                report_seconds = training.changed_seconds + _MEASURE_SECONDS
                if report_seconds > now_seconds:
                    yield report_seconds

    def _submit_due(self, now_seconds: float) -> None:
        for submitter in self._submitters:
            submitter.act(now_seconds, self._submit)

    def _submit(self, submission: SimulatedSubmission) -> str:
        now_seconds = self._clock.now()
        self._last_change_seconds = now_seconds
        job = self._store.jobs.add(submission.spec, now_seconds).id
        if submission.look:
            self._store.measurements.add_observations(job, submission.look, now_seconds)
        self._arrivals[job] = submission.arrival
        self._trainings[job] = submission.training
        self._agents.add(job, submission.training, self._scenario.save_seconds)
        return job

    def _truth(self, job: str) -> GroundTruth | None:
        truths = (submitter.truth(job) for submitter in self._submitters)
        return next((truth for truth in truths if truth is not None), None)

    def _turn(self) -> None:
        """Alternate agents and controller until neither changes anything."""
        now_seconds = self._clock.now()
        self._submit_due(now_seconds)
        instance_states, resized = self._state_of_instances()
        for turn in range(_MOST_TURNS):
            for job in self._agents.speak(now_seconds):
                self._record_end(job, now_seconds)
            report = self._controller.tick(now_seconds)
            before, (instance_states, resized) = (
                (instance_states, resized),
                self._state_of_instances(),
            )
            is_answered = bool(turn) or (resized == before[1] and not report.calls_started)
            if instance_states == before[0] and is_answered:
                break
            self._submit_due(now_seconds)
        if instance_states:
            self._last_change_seconds = now_seconds
        self._record_stopped(now_seconds)

    def _state_of_instances(self) -> tuple[object, object]:
        """Return what a further tick must follow if changed, and what forbids to end at once.

        The first is the state of instances. The second is their sizes and the state of jobs.
        """
        alive, jobs = self._store.instances.alive(), self._store.jobs.alive()
        states = [
            (held.id, held.desired, held.phase, held.stands_by, held.world, held.world_opening)
            for held in alive
        ]
        sizes = [held.devices_used for held in alive]
        return states, (sizes, [(job.id, job.phase, job.attempt) for job in jobs])

    def _record_stopped(self, now_seconds: float) -> None:
        """Record jobs that the controller ended for a budget or a deadline."""
        for job in list(self._trainings):
            record = self._store.jobs.get(job)
            if record.phase is JobPhase.STOPPED:
                self._agents.forget(job)
                self._record_end(job, now_seconds, record.cause or "stopped")

    def _record_end(self, job: str, now_seconds: float, stopped: str | None = None) -> None:
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
            self._last_change_seconds = self._clock.now()
        idle_seconds = self._clock.now() - self._last_change_seconds
        if not self._trainings or idle_seconds < _GIVE_UP_SECONDS:
            return
        if self._scenario.ends_seconds is not None:  # jobs may wait for the next month
            return
        if self._driver is not None and self._driver.may_give_up:
            self._driver.give_up(self._last_change_seconds)
            for job in self._trainings:
                self._store.jobs.request_stop(job, self._clock.now())
            self._last_change_seconds = self._clock.now()
            return
        if idle_seconds < _STUCK_SECONDS:
            return
        job = min(self._trainings)
        decisions = self._store.journal.decisions(job, 1)
        reason = decisions[0].decision.reason if decisions else "nothing was decided for it"
        raise Stuck(f"{job} has waited for a day: {reason}")
