"""The driver of a simulated study: begins trials, prunes them, and states how they stand.

It does for the controller what `hpo.driver` does in earnest, and knows of instances no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.controller.holdings import trained_allocation
from autoscaler.controller.study_beginnings import note_beginnings
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.instance import by_job
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import Truth
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.reach import bounds_on, profiled_maxima
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.searches import SynchronousHalving, UnderWay, search_of
from autoscaler.simulator.simulated_study import SimulatedStudy, StudyTrial
from autoscaler.simulator.submission import Submission, Submit
from autoscaler.simulator.trial_training import TrialTraining
from autoscaler.simulator.workload import Arrival
from autoscaler.store.store import Store

COMPLETE: Final = "complete"
PRUNED: Final = "pruned"
STOPPED: Final = "stopped"

_HOLDER = "simulated"
_FOR_EVER_SECONDS = 1e12


@dataclass(frozen=True, slots=True)
class Report:
    """What a trial reported after so many epochs, and when."""

    at_s: float
    epochs: float
    value: float


@dataclass(eq=False)
class DrivenTrial:
    """A trial that has begun: its number, its job, what it reported, how it ended if it has."""

    number: int
    job: str
    training: TrialTraining
    decided_at: float
    reports: list[Report] = field(default_factory=list)
    ended: str | None = None
    ended_seconds: float | None = None

    def hear(self, now_seconds: float) -> None:
        """Take in what it has reported since."""
        curve, made = self.training.trial.curve, self.training.reports
        for place in range(len(self.reports), made):
            self.reports.append(Report(now_seconds, curve.epochs[place], curve.values[place]))


class StudyDriver:
    """Drives one study to its end.

    `trials` are those that have begun; `barriers` is when all that wait for each other went on,
    `best` the best value of a trial that is complete.
    """

    def __init__(self, scenario: Scenario, study: SimulatedStudy, store: Store) -> None:
        self._scenario = scenario
        self.study = study
        self._store = store
        self._search = search_of(study.rule, study.maximize)
        self._now_seconds = 0.0
        self.trials: list[DrivenTrial] = []
        self.barriers: list[float] = []
        self.best: float | None = None
        self._has_given_up = False
        self._terms: StudyTerms | None = None
        self._told: dict[str, TrialProgress] = {}

    @property
    def is_done(self) -> bool:
        """All trials have begun that will."""
        return self._has_given_up or len(self.trials) >= self.study.rule.trials

    def next_seconds(self) -> float | None:
        """At once, before the first trial."""
        return None if self.trials else 0.0

    def act(self, now_seconds: float, submit: Submit) -> None:
        """Hear of ends, judge, begin what there is to begin, and state it."""
        self._now_seconds = now_seconds
        for trial in self._held():
            trial.hear(now_seconds)
            if self._store.jobs.get(trial.job).phase.is_final:
                self._end(trial, STOPPED)
        self._complete()
        self._judge()
        self._keep_lease(now_seconds)
        to_begin = 0 if self._has_given_up else self._search.to_begin(self._under_way())
        for _ in range(to_begin):
            self._begin(now_seconds, submit)
        self._state(now_seconds)

    @property
    def may_give_up(self) -> bool:
        """Its objective may leave trials without what they need, for ever."""
        objective = self.study.objective
        return objective.budget_usd is not None or objective.after_deadline is AfterDeadline.STOP

    def give_up(self, now_seconds: float) -> None:
        """Stop what has waited in vain since `now_seconds`, and begin nothing more."""
        self._has_given_up = True
        for trial in self._held():
            trial.ended, trial.ended_seconds = STOPPED, now_seconds
            trial.training.has_ended = True

    def truth(self, job: str) -> Truth | None:
        """Nothing is told of trials."""
        return None

    def _keep_lease(self, now_seconds: float) -> None:
        """It drives the study until the last trial has ended."""
        if self.is_done and not self._held():
            self._store.leases.leave(self.study.name, _HOLDER)
        else:
            self._store.leases.take(self.study.name, _HOLDER, now_seconds, _FOR_EVER_SECONDS)

    def _held(self) -> list[DrivenTrial]:
        return [trial for trial in self.trials if trial.ended is None]

    def _under_way(self) -> UnderWay:
        held = self._held()
        pending = sum(
            self._store.jobs.get(trial.job).phase is JobPhase.PENDING
            and not self._store.instances.of_job(trial.job)
            for trial in held
        )
        return UnderWay(len(self.trials), len(held), pending)

    def _last(self, trial: StudyTrial) -> float:
        """The epochs of a trial that goes all the way."""
        rule = self.study.rule
        own = trial.curve.epochs[-1]
        return rule.rungs[-1] if isinstance(rule, SynchronousHalving) else own

    def _complete(self) -> None:
        for trial in self._held():
            training = trial.training
            if training.reports >= training.trial.curve.reports_until(self._last(training.trial)):
                self._end(trial, COMPLETE)
                value = trial.reports[-1].value
                choose = max if self.study.maximize else min
                self.best = value if self.best is None else choose(self.best, value)

    def _judge(self) -> None:
        held = {trial.number: trial for trial in self._held()}
        arrived = {n: t.reports[-1].value for n, t in held.items() if t.training.is_waiting}
        judged = self._search.judge(arrived, len(held) - len(arrived))
        if judged and isinstance(self.study.rule, SynchronousHalving):
            self.barriers.append(self._now_seconds)
        for number, goal in judged.items():
            if goal is None:
                self._end(held[number], PRUNED)
            else:
                self._send_on(held[number], goal)

    def _end(self, trial: DrivenTrial, how: str) -> None:
        trial.ended, trial.ended_seconds = how, self._now_seconds
        trial.training.has_ended = True
        if how is not STOPPED and not trial.training.members:  # nobody is there to end by itself
            self._store.jobs.set_phase(trial.job, JobPhase.STOPPING, self._now_seconds, how)

    def _send_on(self, trial: DrivenTrial, goal: float) -> None:
        training = trial.training
        trial.decided_at = min(goal, self._last(training.trial))
        training.go_on_to(training.trial.curve.reports_until(trial.decided_at))

    def _begin(self, now_seconds: float, submit: Submit) -> None:
        number = len(self.trials)
        planned = self.study.trials[number]
        settings = self._scenario.training
        settings = replace(
            settings, seed=settings.seed + number, slowdown=settings.slowdown * planned.slowdown
        )
        bounds = self._bounds(planned.profile)
        training = TrialTraining(planned, self.study, bounds, settings, now_seconds)
        name = f"{self.study.name}-{number}"
        spec = JobSpec(
            name=name,
            command=("simulated",),
            batch=BatchSpec(
                bounds.initial, None, bounds.device_maximum, False, bounds.kind_maxima
            ),
            instances=self._instances(planned.profile),
            objective=self.study.job_objective,
            requested_devices=1,
            program=self.study.name,
            study=self.study.name,
        )
        arrival = Arrival(name, now_seconds, planned.profile.name, 1, bounds.initial)
        job = submit(Submission(arrival, spec, training))
        trial = DrivenTrial(number, job, training, 0.0)
        self.trials.append(trial)
        self._send_on(trial, self._search.first_goal(number))

    def _bounds(self, profile: Profile) -> BatchBounds:
        """Its own batch, and how much of it a device of each kind bears."""
        maxima = {
            each.offer.device_kind: int(profile.device_batches(each.profile_kind, (1,))[1])
            for each in self._scenario.equipment.values()
        }
        return bounds_on(maxima, profile.initial_batch, profile.initial_batch, adaptive=False)

    def _instances(self, profile: Profile) -> InstanceBounds:
        """As the study has it, and of no offer more than was profiled."""
        bounds, equipment = self.study.instances, self._scenario.equipment.values()
        reach = profiled_maxima(profile, equipment, bounds.maximum)
        return replace(bounds, maxima=(*bounds.maxima, *reach))

    def _state(self, now_seconds: float) -> None:
        """State what is new, as a driver does in earnest."""
        terms = self._terms_now()
        if terms != self._terms:
            self._store.studies.state(self.study.name, terms)
            self._terms = terms
        held = by_job(self._store.instances.alive())
        note_beginnings(self._store, self.study.name, held, now_seconds)
        news = [each for each in self._progress() if self._told.get(each.job) != each]
        told = [(each, trained_allocation(held.get(each.job, ()))) for each in news]
        if told:
            self._store.studies.tell(self.study.name, told, now_seconds)
        self._told |= {each.job: each for each in news}

    def _progress(self) -> Iterator[TrialProgress]:
        for trial in self.trials:
            known = self._told.get(trial.job)
            if known is not None and known.has_ended:
                continue
            reports = trial.reports
            yield TrialProgress(
                job=trial.job,
                progress=reports[-1].epochs if reports else 0.0,
                decided_at=trial.decided_at,
                features=self.study.features[trial.number] if self.study.features else {},
                reports=tuple((each.epochs, each.value) for each in reports),
                pauses=True,
                has_ended=trial.ended is not None,
            )

    def _terms_now(self) -> StudyTerms:
        study = self.study
        return StudyTerms(
            objective=study.objective,
            directions=("maximize" if study.maximize else "minimize",),
            to_begin=study.rule.trials - len(self.trials),
            full_work=max(self._last(trial) for trial in study.trials),
            synchronous=isinstance(study.rule, SynchronousHalving),
            later=self._search.later(),
            best=self.best,
        )
