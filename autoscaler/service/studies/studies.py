"""Exchange of calls and answers between trials and the drivers of their studies.

Calls and answers are stored. Leases and incarnations exclude earlier drivers and workers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from autoscaler.clock import Clock
from autoscaler.controller.budgets.spending import Spending
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.jobs.holdings import trained_allocation
from autoscaler.controller.jobs.study_starts import note_beginnings
from autoscaler.domain.access import Identity
from autoscaler.domain.errors import Conflict, NotAllowed, UnknownJob
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import Desired, HeldInstance, by_job
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.rules import (
    LONGEST_SECONDS,
    require_amount,
    require_line,
    require_name,
    require_positive,
)
from autoscaler.domain.study_rules import (
    require_valid_answers,
    require_valid_calls,
    require_valid_statement,
)
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import StudyTerms
from autoscaler.domain.trial import (
    StopRequest,
    StudyStop,
    TrialAnswer,
    TrialEnd,
    WaitingCall,
)
from autoscaler.service.access.gate import claim_study
from autoscaler.service.files.uploads import TrialFiles
from autoscaler.service.notifier import Notifier
from autoscaler.service.studies.checkpoints import TrialCheckpoints
from autoscaler.service.studies.courses import course_of_study, study_summary
from autoscaler.service.studies.stays import stays_of_study
from autoscaler.service.versions import study_version
from autoscaler.store.repositories.studies import TermsCheck, accept_terms, unknown_study
from autoscaler.store.repositories.trials import require_driver
from autoscaler.store.store import Store
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyHistoryView,
    StudyLease,
    StudyStatement,
    StudySummary,
    StudyView,
    TrialCalls,
)

_LONGEST_LEASE_SECONDS = 300.0


class Studies:
    """Server of studies: driver leases, calls of trials, answers, budgets and progress."""

    def __init__(
        self,
        store: Store,
        files: TrialFiles,
        wake: Callable[[], None],
        clock: Clock,
        status: ControllerStatus,
        checkpoints: TrialCheckpoints,
        study_usd: Decimal | None = None,
    ) -> None:
        self._store = store
        self._study_usd = study_usd
        self._status = status
        self._checkpoints = checkpoints
        self._files = files
        self._wake = wake
        self._spending = Spending(store)
        self._errors = ErrorRecord("study")
        self._clock = clock
        self._notifier = Notifier()

    def lease(
        self, study: str, lease: StudyLease, requester: Identity, renews: bool = False
    ) -> StudyStop:
        """Take or renew the lease of a study; return whether the driver is to stop the study.

        The first requester owns the study. A driver that `renews` has held the lease before.

        Raises:
            Conflict: another driver holds the lease, or has held it since.
            Forbidden: the study belongs to another person.
        """
        require_name(study, "study")
        require_line(lease.holder, "holder")
        require_positive(lease.seconds, "seconds", LONGEST_SECONDS)
        claim_study(self._store, study, requester)
        seconds = min(lease.seconds, _LONGEST_LEASE_SECONDS)
        self._store.leases.take(study, lease.holder, self._clock.now(), seconds, renews)
        return self._store.settings.study_stop(study, lease.holder)

    def driver(self, study: str) -> str | None:
        """Return the holder of the study's lease; None if it has none."""
        return self._store.leases.holder(study, self._clock.now())

    def terms(self, study: str) -> StudyTerms | None:
        """Return the terms in force of a study; None if none are stored."""
        return self._store.studies.terms(study)

    def leave(self, study: str, holder: str) -> None:
        """Release the lease of a driver, and remove the study's uploaded files.

        The files stay if another driver has the lease: its trials have uploaded them.
        """
        self._store.leases.leave(study, holder)
        self._store.settings.forget_stop(study, holder)
        if self.driver(study) is None:
            self._files.clear(study)

    def stop(self, study: str, at_once: bool, person: str) -> None:
        """Request for a person that the driver stops the study, as its next renewal says.

        Raises:
            Conflict: the study has no driver.
        """
        driver = self.driver(study)
        if driver is None:
            raise Conflict(f"study {study} has no driver: there is nothing to stop")
        stop = StudyStop.AT_ONCE if at_once else StudyStop.WITH_ITS_TRIALS
        request = StopRequest(stop, self._clock.now(), person)
        self._store.settings.stop_study(study, driver, request)

    async def calls(
        self, study: str, holder: str, wait_seconds: float, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Return the waiting calls of a study; wait until there are more than `beyond`.

        Raises:
            Conflict: the holder is not the study's driver.
        """

        def look() -> tuple[WaitingCall, ...]:
            self._require_driver(study, holder)
            waiting = self._store.trials.waiting(study)
            return waiting if len(waiting) > beyond else ()

        return await self._notifier.wait_for(f"calls of {study}", look, wait_seconds)

    async def answer(
        self, study: str, given: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Store answers; return the calls that wait then, as `calls` does.

        Without `wait_seconds` return no calls.

        Raises:
            Conflict: the holder is not the study's driver.
            UnknownJob: an ended job is no trial of the study.
        """
        require_valid_answers(given.answers, given.ended)

        def keep() -> None:
            self._require_driver(study, given.holder)
            for end in given.ended:
                # Recorded before the worker receives the answer and exits.
                self._record_end(study, end)
            self._store.trials.answer(study, given.answers, given.holder)

        await run_in_threadpool(keep)
        if given.ended:
            self._wake()
        for job in {given_answer.job for given_answer in given.answers}:
            self._notifier.notify(f"answers to {job}")
        if not wait_seconds:
            return ()
        return await self.calls(study, given.holder, wait_seconds, beyond)

    def view(self, study: str) -> StudyView:
        """Return the state of a study for users.

        A part that can't be read is reported as an error.

        Raises:
            NotFound: there is no such study.
        """
        now_seconds, store = self._clock.now(), self._store
        errors, alive = self._errors, store.jobs.alive()
        terms = errors.attempt(study, "terms", partial(store.studies.terms, study))
        study_jobs = {job.id for job in alive if job.spec.study == study}
        driver = self._store.leases.holder(study, now_seconds)
        if (
            terms is None
            and driver is None
            and not study_jobs
            and study not in errors.by_subject()
        ):
            raise unknown_study(study)
        trials = errors.attempt(study, "trials", partial(store.studies.trials, study)) or ()
        trial_jobs = {record.stands.job for record in trials}
        spent = partial(self._spending.of_study, study, alive, now_seconds, trial_jobs)
        spent_usd = errors.attempt(study, "cost", spent)
        instances = [
            instance for instance in self._store.instances.alive() if instance.job in study_jobs
        ]
        return StudyView(
            name=study,
            driver=driver,
            terms=terms,
            trials=trials,
            spent_usd=spent_usd,
            usd_per_hour=sum(
                (instance.costing_usd_per_hour for instance in instances), Decimal(0)
            ),
            trouble={**self._status.study_troubles, **errors.by_subject()}.get(study),
            version="" if terms is None else study_version(terms),
            stop=None if driver is None else store.settings.stop_request(study, driver),
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of all studies, sorted."""
        return self._store.studies.names()

    def summary(self, study: str) -> StudySummary:
        """Return the line of a study in a list.

        Raises:
            NotFound: there is no such study.
        """
        return study_summary(self._store, self.view(study))

    def history(self, study: str, points: int) -> StudyHistoryView:
        """Return the course of a study with at most `points` times.

        Raises:
            NotFound: there is no such study.
        """
        return course_of_study(self._store, self.view(study), self._clock.now(), points)

    def stays(self, study: str) -> tuple[StudyStay, ...]:
        """Return the periods in which trials of the study held instances."""
        return stays_of_study(self._store, study)

    def set_budget(
        self, study: str, budget_usd: Decimal, precondition: TermsCheck = accept_terms
    ) -> StudyTerms:
        """Set the budget of a study as commanded by a user; return the terms before.

        `precondition` may refuse these, as they are stored.

        Raises:
            NotFound: there is no such study.
            SpecError: the amount is invalid.
        """
        require_amount(budget_usd, "budget_usd")
        before = self._store.studies.set_budget(study, budget_usd, precondition)
        self._wake()
        return before

    def state(self, study: str, statement: StudyStatement) -> None:
        """Store the terms of a study and the progress of its trials.

        Raises:
            Conflict: the holder is not the study's driver.
            UnknownJob: the study has no such trial.
        """
        require_valid_statement(statement.terms, statement.trials)
        self._require_driver(study, statement.holder)
        for trial in statement.trials:
            self._trial(study, trial.job)
        objective = statement.terms.objective.capped(self._study_usd)
        terms = replace(statement.terms, objective=objective)
        self._store.studies.state(study, terms, statement.holder)
        held = by_job(self._store.instances.alive())
        now_seconds = self._clock.now()
        note_beginnings(self._store, study, held, now_seconds)
        progress = [
            (trial, trained_allocation(held.get(trial.job, ()))) for trial in statement.trials
        ]
        self._store.studies.tell(study, progress, now_seconds, statement.holder)
        self._wake()

    def begin(self, held: HeldInstance, job: str | None, started_seconds: float) -> int:
        """Give the trial `job` to this start of an instance's script; return its incarnation.

        Raises:
            NotAllowed: the instance has to drain, or its job is no trial.
            Conflict: a later start has the trial, or the instance has another job.
        """
        require_held(held, job)
        if held.desired is Desired.ABSENT:
            raise NotAllowed(f"{held.id} is to leave: it takes up no trial")
        self._study(held)
        return self._store.trials.begin(held.job, held.id, started_seconds)

    async def tell(
        self, held: HeldInstance, received: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        """Store calls of a trial; return the answers after call number `after`.

        Without `wait_seconds` return none.

        Raises:
            Conflict: a later incarnation has the trial, or the instance has another job.
        """
        require_valid_calls(received.incarnation, received.calls)
        require_held(held, received.job)
        keep = self._store.trials.tell
        study = await run_in_threadpool(keep, held.job, received.incarnation, received.calls)
        self._notifier.notify(f"calls of {study}")
        if not wait_seconds:
            return ()
        return await self.answers(held, received.job, received.incarnation, after, wait_seconds)

    async def answers(
        self,
        held: HeldInstance,
        job: str | None,
        incarnation: int,
        after: int,
        wait_seconds: float,
    ) -> tuple[TrialAnswer, ...]:
        """Return the answers after call number `after`; wait until there are any.

        Raises:
            Conflict: the instance has another job.
        """
        require_held(held, job)

        def look() -> tuple[TrialAnswer, ...]:
            return self._store.trials.answers(held.job, incarnation, after)

        return await self._notifier.wait_for(f"answers to {held.job}", look, wait_seconds)

    def end_polls(self) -> None:
        """End all long polls, because the server ends; call this in its event loop."""
        self._notifier.close()

    async def receive(
        self,
        held: HeldInstance,
        sha256: str,
        chunks: AsyncIterator[bytes],
        declared_bytes: int = 0,
    ) -> None:
        """Store an uploaded file for the driver.

        Nothing is read of an upload that is declared to be too large; 0: its size is not declared.

        Raises:
            SpecError: the file is too large, or has another SHA-256.
        """
        study = await run_in_threadpool(self._study, held)
        await self._files.receive(study, sha256, chunks, declared_bytes)

    def file(self, study: str, sha256: str) -> Path:
        """Return the path of an uploaded file.

        Raises:
            NotFound: the file was not uploaded.
        """
        return self._files.path(study, sha256)

    def remove_file(self, study: str, sha256: str) -> None:
        """Remove an uploaded file that the driver has fetched."""
        self._files.remove(study, sha256)

    def remove_checkpoints(self, study: str, trials: Sequence[str]) -> int:
        """Remove the checkpoints of trials; return how many trials had any.

        Raises:
            SpecError: a name is no checkpoint of a trial.
        """
        return self._checkpoints.remove(study, trials)

    def _record_end(self, study: str, end: TrialEnd) -> None:
        """Record the end of a trial, and that its instances will soon be free for the next one.

        A job without instances is stopped, since it has no worker that could end it.

        Raises:
            UnknownJob: the study has no such trial.
        """
        job = self._trial(study, end.job)
        now_seconds, instances = self._clock.now(), self._store.instances.of_job(job.id)
        facts: dict[str, str] = {Fact.TRIAL_END: end.ending.value}
        if end.cause is not None:
            facts[Fact.TRIAL_CAUSE] = end.cause
        for held in instances:
            self._store.instances.note(held.id, {Fact.ENDING: str(now_seconds), **facts})
        if instances:
            return
        for held in self._store.instances.of_job(job.id, include_ended=True)[-1:]:
            self._store.instances.note(held.id, facts)
        if not job.phase.is_final:
            self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, end.cause)

    def _trial(self, study: str, job: str) -> JobRecord:
        """Return a trial of a study.

        Raises:
            UnknownJob: the study has no such trial.
        """
        record = self._store.jobs.get(job)
        if record.spec.study != study:
            raise UnknownJob(f"job {record.id} is no trial of study {study}")
        return record

    def _require_driver(self, study: str, holder: str) -> None:
        require_driver(study, holder, self.driver(study))

    def _study(self, held: HeldInstance) -> str:
        study = self._store.jobs.get(held.job).spec.study
        if study is None:
            raise NotAllowed(f"job {held.job} is no trial of a study")
        return study


def require_held(held: HeldInstance, job: str | None) -> None:
    """Check that an instance still works for a job.

    Raises:
        Conflict: the instance has another job.
    """
    if job not in (None, held.job):
        raise Conflict(f"{held.id} works for {held.job} by now, not for {job}")
