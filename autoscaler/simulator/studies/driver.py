"""Driver of a simulated study: begins trials, prunes them, and states their progress.

It acts on the controller as `hpo.driver` does, and likewise does not know of instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.controller.jobs.holdings import trained_allocation
from autoscaler.controller.jobs.study_starts import note_beginnings
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.instance import by_job
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.simulator.profiles.coverage import bounds_on, profiled_maxima
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.studies.searches import SynchronousHalving, UnderWay, search_of
from autoscaler.simulator.studies.study import SimulatedStudy, StudyTrial
from autoscaler.simulator.training.trials import TrialTraining
from autoscaler.simulator.workloads.submission import SimulatedSubmission, Submit
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.store import Store

COMPLETE: Final = "complete"
PRUNED: Final = "pruned"
STOPPED: Final = "stopped"

_HOLDER = "simulated"
_FOR_EVER_SECONDS = 1e12


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Report of a trial: its time, epochs and value."""

    at_s: float
    epochs: float
    value: float


@dataclass(eq=False)
class DrivenTrial:
    """Trial that has begun, with its job and reports; `ended` is how it ended, None: it runs."""

    number: int
    job: str
    training: TrialTraining
    decided_at: float
    reports: list[TrialReport] = field(default_factory=list)
    ended: str | None = None
    ended_seconds: float | None = None

    def hear(self, now_seconds: float) -> None:
        """Add the new reports of the training."""
        curve, report_count = self.training.trial.curve, self.training.reports
        for place in range(len(self.reports), report_count):
            self.reports.append(TrialReport(now_seconds, curve.epochs[place], curve.values[place]))


class StudyDriver:
    """Driver of one study until its end.

    `trials` have begun. `barriers` are the times at which waiting trials went on. `best` is the
    best value of a complete trial.
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
        self._last_stated: dict[str, TrialProgress] = {}

    @property
    def is_done(self) -> bool:
        """Whether no further trial begins."""
        return self._has_given_up or len(self.trials) >= self.study.rule.trials

    def next_seconds(self) -> float | None:
        """Return 0 before the first trial; None later."""
        return None if self.trials else 0.0

    def act(self, now_seconds: float, submit: Submit) -> None:
        """Record ends, judge trials, begin new ones, and state the progress."""
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
        """Whether the objective may starve trials of instances for ever."""
        objective = self.study.objective
        return objective.budget_usd is not None or objective.after_deadline is AfterDeadline.STOP

    def give_up(self, now_seconds: float) -> None:
        """End the trials that have waited since `now_seconds`, and begin none."""
        self._has_given_up = True
        for trial in self._held():
            trial.ended, trial.ended_seconds = STOPPED, now_seconds
            trial.training.has_ended = True

    def truth(self, job: str) -> GroundTruth | None:
        """Return None, because trials have no ground truth."""
        return None

    def _keep_lease(self, now_seconds: float) -> None:
        """Hold the study's lease until the last trial has ended."""
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
        """Return the epochs of a complete trial."""
        rule = self.study.rule
        last_epoch = trial.curve.epochs[-1]
        return rule.rungs[-1] if isinstance(rule, SynchronousHalving) else last_epoch

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
        arrived = {
            number: trial.reports[-1].value
            for number, trial in held.items()
            if trial.training.is_waiting
        }
        judged = self._search.judge(arrived, len(held) - len(arrived))
        if judged and isinstance(self.study.rule, SynchronousHalving):
            self.barriers.append(self._now_seconds)
        for number, goal in judged.items():
            if goal is None:
                self._end(held[number], PRUNED)
            else:
                self._set_goal(held[number], goal)

    def _end(self, trial: DrivenTrial, ending: str) -> None:
        trial.ended, trial.ended_seconds = ending, self._now_seconds
        trial.training.has_ended = True
        if ending is not STOPPED and not trial.training.members:  # no agent reports the end
            self._store.jobs.set_phase(trial.job, JobPhase.STOPPING, self._now_seconds, ending)

    def _set_goal(self, trial: DrivenTrial, goal: float) -> None:
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
        job = submit(SimulatedSubmission(arrival, spec, training))
        trial = DrivenTrial(number, job, training, 0.0)
        self.trials.append(trial)
        self._set_goal(trial, self._search.first_goal(number))

    def _bounds(self, profile: Profile) -> BatchBounds:
        """Return the trial's batch, and the most of it that a device of each kind takes."""
        maxima = {
            machine.offer.device_kind: int(profile.device_batches(machine.profile_kind, (1,))[1])
            for machine in self._scenario.equipment.values()
        }
        return bounds_on(maxima, profile.initial_batch, profile.initial_batch, adaptive=False)

    def _instances(self, profile: Profile) -> InstanceBounds:
        """Return the study's bounds, limited to what was profiled."""
        bounds, equipment = self.study.instances, self._scenario.equipment.values()
        reach = profiled_maxima(profile, equipment, bounds.maximum)
        return replace(bounds, maxima=(*bounds.maxima, *reach))

    def _state(self, now_seconds: float) -> None:
        """State new terms and progress to the controller."""
        terms = self._terms_now()
        if terms != self._terms:
            self._store.studies.state(self.study.name, terms)
            self._terms = terms
        held = by_job(self._store.instances.alive())
        note_beginnings(self._store, self.study.name, held, now_seconds)
        changed = [
            progress
            for progress in self._progress()
            if self._last_stated.get(progress.job) != progress
        ]
        statements = [
            (progress, trained_allocation(held.get(progress.job, ()))) for progress in changed
        ]
        if statements:
            self._store.studies.tell(self.study.name, statements, now_seconds)
        self._last_stated |= {progress.job: progress for progress in changed}

    def _progress(self) -> Iterator[TrialProgress]:
        for trial in self.trials:
            last_stated = self._last_stated.get(trial.job)
            if last_stated is not None and last_stated.has_ended:
                continue
            reports = trial.reports
            yield TrialProgress(
                job=trial.job,
                progress=reports[-1].epochs if reports else 0.0,
                decided_at=trial.decided_at,
                features=self.study.features[trial.number] if self.study.features else {},
                reports=tuple((report.epochs, report.value) for report in reports),
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
