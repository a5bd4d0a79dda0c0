"""Invariants of a study, against its storage, what its scripts did, and the clouds' own state."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from optuna.trial import FrozenTrial, TrialState

from autoscaler.domain.instance import Desired, HeldInstance
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.repositories.jobs import Jobs
from hpo.protocol import attributes
from tests.dst.limit_invariants import in_flight_usd
from tests.dst.studies import NAME, SimulatedStudy

if TYPE_CHECKING:
    from tests.dst.world import World

_AFTER_END_SECONDS: Final = 900
_NO_CAUSE: Final = "its job has ended without a result"
_EXACT_USD: Final = Decimal("1e-9")

Break = Callable[[str, str], None]


class StudyInvariants:
    """Checks of the study of one world; `break_` records a violation."""

    def __init__(self, world: World, study: SimulatedStudy, break_: Break) -> None:
        self._world = world
        self._study = study
        self._break = break_
        self._idle_seconds: defaultdict[str, int] = defaultdict(int)
        self._overspending: tuple[Decimal, Decimal] | None = None
        self._watch_submissions(world.store.jobs)

    def check(
        self,
        held: dict[str, HeldInstance],
        jobs: dict[str, JobRecord],
        seconds: int,
        is_healthy: bool,
    ) -> None:
        """Check all but costs after a step of `seconds`."""
        trials = self._study.trials
        for failure in self._study.course.failures:
            self._break("a trial's worker gets its answers", failure)
        self._check_ends(trials)
        self._check_repeats(trials)
        self._check_held(trials, held, jobs, seconds if is_healthy else 0)

    def check_budget(self, held: Iterable[HeldInstance], slack_usd: Decimal) -> None:
        """Check that the budget is passed by no more than what is in flight as it is reached.

        `slack_usd` is the cost of the time in which the controller could not act.
        """
        terms = self._world.store.studies.terms(NAME)
        budget_usd = None if terms is None else terms.objective.most_usd
        machines = [m for m in self._world.truth.machines.values() if is_of_study(m.job)]
        now_seconds = self._world.scheduler.now_seconds
        spent_usd = sum((m.billed_usd(now_seconds) for m in machines), Decimal(0))
        if budget_usd is None or spent_usd <= budget_usd:
            self._overspending = None
            return
        if self._overspending is None or self._overspending[0] != budget_usd:
            of_study = (instance for instance in held if is_of_study(instance.job))
            self._overspending = budget_usd, in_flight_usd(of_study, machines, spent_usd)
        most_usd = max(self._overspending) + slack_usd
        if spent_usd > most_usd:
            self._break("no budget is passed", f"study: ${spent_usd:.4f} of ${budget_usd}")

    def check_costs(self) -> None:
        """Check that the costs of the trials in the ledger are those of the study in the API."""
        world = self._world
        now_seconds = world.clock.now()
        status, view = world.ask("GET", f"/v1/studies/{NAME}")
        if status not in (200, 404, 503):
            self._break("users get an answer", f"the study: {status}")
        if status != 200 or world.clock.now() != now_seconds:
            return
        ledger = Ledger(world.store.ledger.entries())
        jobs = [job.id for job in world.store.jobs.all() if job.spec.study == NAME]
        booked_usd = sum((ledger.spent(job, now_seconds) for job in jobs), Decimal(0))
        spent_usd = Decimal(view["spent_usd"])
        if abs(spent_usd - booked_usd) > _EXACT_USD:
            text = f"${spent_usd} in the API, ${booked_usd} in the ledger of {len(jobs)} jobs"
            self._break("a study costs what its trials cost", text)

    def check_end(self) -> None:
        """Check the study after its end."""
        world, trials = self._world, self._study.trials
        for trial in trials:
            if not trial.state.is_finished():
                self._break("each trial ends", f"trial {trial.number} is {trial.state.name}")
        begun = sum(attributes.RETRY_OF not in trial.user_attrs for trial in trials)
        if begun != self._study.plan.trials:
            text = f"{begun} of {self._study.plan.trials}"
            self._break("a study begins each trial once", text)
        holder = world.store.leases.holder(NAME, world.clock.now())
        if holder is not None:
            self._break("zero when all is done", f"{holder} holds the study's lease")
        self.check_costs()

    def _watch_submissions(self, jobs: Jobs) -> None:
        """Check each job as it is stored."""
        add = jobs.add

        def watched(spec: JobSpec, now_seconds: float, driver: str | None = None) -> JobRecord:
            job = add(spec, now_seconds, driver)
            if spec.study == NAME:
                self._check_submission(job, driver)
            return job

        jobs.add = watched  # type: ignore[method-assign]

    def _check_submission(self, job: JobRecord, driver: str | None) -> None:
        """Check a job at its submission: its driver leads, and its trial has not ended."""
        latest = self._world.store.leases.holder(NAME, -math.inf)
        if driver is None or driver != latest:
            text = f"{job.id} by {driver}, while {latest} leads"
            self._break("no driver that was overtaken submits a job", text)
        number = int(job.spec.name.removeprefix(f"{NAME}-"))
        state = self._study.trials[number].state
        if state.is_finished():
            text = f"{job.id}, whose trial is {state.name}"
            self._break("no trial gets a job after its end", text)

    def _check_ends(self, trials: list[FrozenTrial]) -> None:
        """Check that each trial ends once, with what its script reported or with a cause."""
        course = self._study.course
        for trial in trials:
            number, ends = trial.number, course.ends[trial.number]
            if len(ends) != trial.state.is_finished():
                self._break("each trial ends once", f"trial {number}: {[e.name for e in ends]}")
            for step, value in trial.intermediate_values.items():
                if value not in course.reported[number, step]:
                    text = f"trial {number} has {value} at step {step}"
                    self._break("a trial has what its script reported", text)
            if trial.state is TrialState.COMPLETE and trial.value not in course.returned[number]:
                text = f"trial {number} has {trial.value} of {sorted(course.returned[number])}"
                self._break("a trial has what its script reported", text)
            if trial.state is TrialState.FAIL:
                self._check_cause(trial)

    def _check_cause(self, trial: FrozenTrial) -> None:
        """Check that a failed trial says why, unless a person has stopped its job."""
        cause = trial.user_attrs.get(attributes.CAUSE)
        was_drained = any(fault.kind == "drain" for fault in self._world.scenario.faults)
        if not cause or (cause == _NO_CAUSE and not was_drained):
            self._break("a failed trial says why", f"trial {trial.number}: {cause}")

    def _check_repeats(self, trials: list[FrozenTrial]) -> None:
        """Check that no trial begins twice, nor its retry, and that each job runs one trial."""
        begun = [trial for trial in trials if attributes.RETRY_OF not in trial.user_attrs]
        if len(begun) > self._study.plan.trials:
            text = f"{len(begun)} of {self._study.plan.trials}"
            self._break("a study begins each trial once", text)
        retries = Counter(trial.user_attrs.get(attributes.RETRY_OF) for trial in trials)
        del retries[None]
        jobs = Counter(
            trial.user_attrs.get(attributes.JOB)
            for trial in trials
            if trial.state is TrialState.RUNNING
        )
        for number, count in retries.items():
            if count > 1:
                self._break("a study begins each trial once", f"{count} retries of {number}")
        for job, count in jobs.items():
            if count > 1:
                self._break("a job runs one trial at a time", f"{job}: {count}")

    def _check_held(
        self,
        trials: list[FrozenTrial],
        held: dict[str, HeldInstance],
        jobs: dict[str, JobRecord],
        seconds: int,
    ) -> None:
        """Check that no job without a running trial holds an instance for long."""
        running = {
            str(trial.user_attrs.get(attributes.JOB))
            for trial in trials
            if trial.state is TrialState.RUNNING
        }
        names = {job.spec.name for job in jobs.values() if job.id in running} | running
        for instance in held.values():
            job = jobs[instance.job]
            is_wanted = instance.desired is Desired.PRESENT and job.spec.study == NAME
            if not is_wanted or job.id in running or job.spec.name in names:
                self._idle_seconds[instance.id] = 0
            elif self._study.driver is not None:
                self._idle_seconds[instance.id] += seconds
            if self._idle_seconds[instance.id] > _AFTER_END_SECONDS:
                text = f"{instance.id} of {job.id}, which is {job.phase}"
                self._break("an ended trial holds no instance", text)


def is_of_study(job: str) -> bool:
    """Return whether a job is a trial, by its name."""
    return job.startswith(NAME)
