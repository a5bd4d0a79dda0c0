"""A deployment on a virtual clock: the real controller, a simulated cloud, simulated trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autoscaler.clock import Clock, VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.lingering import free_since_seconds, start_seconds
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobPhase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot, Truth
from autoscaler.policies.base import Policy
from autoscaler.simulator.agents import SimulatedAgents
from autoscaler.simulator.arriving import Arriving
from autoscaler.simulator.job_training import JobTraining, Span
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.study_driver import StudyDriver
from autoscaler.simulator.submission import Submission, Submitter
from autoscaler.simulator.workload import Arrival
from autoscaler.store.store import Store
from providers.simulated.provider import SimulatedProvider

# Turns of the controller at one moment: to release, drain, terminate and order takes four.
_MOST_TURNS = 8
_STUCK_SECONDS = 86400.0
_GIVE_UP_SECONDS = 3600.0
# After a change of its instances a job tells so much later how it goes; real ones, which report
# every second, within about 5 s (`SwitchingCosts.measure_seconds`).
_MEASURE_SECONDS = 10.0
_FOR_EVER_SECONDS = 1e12


class Stuck(CastorError):
    """Nothing more will happen, and some job has not ended."""


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

    `failed_plans` and `solver_failures` are as in `ControllerStatus`; `driver` is that of the
    study, if there was one.
    """

    jobs: tuple[Ran, ...]
    ended_seconds: float
    decision_seconds: tuple[float, ...]
    failed_plans: int = 0
    solver_failures: int = 0
    driver: StudyDriver | None = None


class TimedPolicy:
    """A policy, and how long each of its plans took by `stopwatch`."""

    def __init__(self, policy: Policy, stopwatch: Clock) -> None:
        self._policy = policy
        self._stopwatch = stopwatch
        self.plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)
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
        study = scenario.study
        self._driver = None if study is None else StudyDriver(scenario, study, store)
        self._submitters: list[Submitter] = [Arriving(scenario)]
        if self._driver is not None:
            self._submitters.append(self._driver)
        self._arrivals: dict[str, Arrival] = {}
        self._trainings: dict[str, JobTraining] = {}
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
        while self._goes_on():
            next_seconds = self._next_seconds()
            self._agents.advance(next_seconds)
            self._clock.advance(next_seconds - self._clock.now())
            self._turn()
            self._check_stuck()
        order = {job: place for place, job in enumerate(self._arrivals)}
        jobs = sorted(self._ran, key=lambda ran: order[ran.job])
        status = self._controller.status
        return Run(
            jobs=tuple(jobs),
            ended_seconds=self._clock.now(),
            decision_seconds=tuple(self._policy.seconds),
            failed_plans=status.failed_plans,
            solver_failures=status.solver_failures,
            driver=self._driver,
        )

    def _goes_on(self) -> bool:
        is_waiting = not all(each.is_done for each in self._submitters)
        return is_waiting or bool(self._trainings or self._store.instances.alive())

    def _next_seconds(self) -> float:
        now_seconds, interval = self._clock.now(), self._scenario.interval_seconds
        moments = [self._cloud.next_event_seconds()]
        moments.extend(each.next_seconds() for each in self._submitters)
        moments.extend(self._ends_of_lingering(now_seconds))
        moments.extend(self._ends_of_standby(now_seconds))
        if self._scenario.replans_on_news:
            moments.extend(self._first_reports(now_seconds))
        if self._trainings or self._store.instances.alive():
            moments.append((now_seconds // interval + 1) * interval)
        soonest = min(moment for moment in moments if moment is not None)
        ends = (training.completes_before(soonest) for training in self._trainings.values())
        return max(min((end for end in ends if end is not None), default=soonest), now_seconds)

    def _ends_of_lingering(self, now_seconds: float) -> Iterator[float]:
        """When what trials have left is given back, if none of the others has taken it."""
        for held in self._store.instances.alive() if self._driver is not None else ():
            since_seconds = free_since_seconds(held, self._store.jobs.get(held.job))
            if since_seconds is not None and since_seconds + start_seconds(held) > now_seconds:
                yield since_seconds + start_seconds(held)

    def _ends_of_standby(self, now_seconds: float) -> Iterator[float]:
        """Yield when instances on standby are given back, unless they are called back before."""
        for held in self._store.instances.alive():
            ends_seconds = held.standby_ends_seconds if held.stands_by else None
            if ends_seconds is not None and ends_seconds > now_seconds:
                yield ends_seconds

    def _first_reports(self, now_seconds: float) -> Iterator[float]:
        """When jobs whose instances changed have measured how they go now, and tell it."""
        for training in self._trainings.values():
            if training.changed_seconds is not None:
                told_seconds = training.changed_seconds + _MEASURE_SECONDS
                if told_seconds > now_seconds:
                    yield told_seconds

    def _act(self, now_seconds: float) -> None:
        for submitter in self._submitters:
            submitter.act(now_seconds, self._submit)

    def _submit(self, submission: Submission) -> str:
        now_seconds = self._clock.now()
        self._moved_seconds = now_seconds
        job = self._store.jobs.add(submission.spec, now_seconds).id
        if submission.look:
            self._store.measurements.add_observations(job, submission.look, now_seconds)
        self._arrivals[job] = submission.arrival
        self._trainings[job] = submission.training
        self._agents.add(job, submission.training)
        return job

    def _truth(self, job: str) -> Truth | None:
        found = (each.truth(job) for each in self._submitters)
        return next((truth for truth in found if truth is not None), None)

    def _turn(self) -> None:
        """Let the agents speak and the controller answer, until neither has anything to add."""
        now_seconds = self._clock.now()
        self._act(now_seconds)
        moved, resized = self._standing()
        for turn in range(_MOST_TURNS):
            for job in self._agents.speak(now_seconds):
                self._keep(job, now_seconds)
            report = self._controller.tick(now_seconds)
            before, (moved, resized) = (moved, resized), self._standing()
            is_answered = bool(turn) or (resized == before[1] and not report.calls_started)
            if moved == before[0] and is_answered:
                break
            self._act(now_seconds)
        if moved:
            self._moved_seconds = now_seconds
        self._keep_stopped(now_seconds)

    def _standing(self) -> tuple[object, object]:
        """What of the instances a turn may change so that another has to follow, and what so that
        the first must not be the last."""
        alive, jobs = self._store.instances.alive(), self._store.jobs.alive()
        moved = [(held.id, held.desired, held.phase, held.stands_by) for held in alive]
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
        idle_seconds = self._clock.now() - self._moved_seconds
        if not self._trainings or idle_seconds < _GIVE_UP_SECONDS:
            return
        if self._driver is not None and self._driver.may_give_up:
            self._driver.give_up(self._moved_seconds)
            for job in self._trainings:
                self._store.jobs.request_stop(job, self._clock.now())
            self._moved_seconds = self._clock.now()
            return
        if idle_seconds < _STUCK_SECONDS:
            return
        job = min(self._trainings)
        said = self._store.journal.decisions(job, 1)
        reason = said[0].decision.reason if said else "nothing was decided for it"
        raise Stuck(f"{job} has waited for a day: {reason}")
