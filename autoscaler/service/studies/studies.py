"""The line between trials and the drivers of their studies: kept, handed on, fenced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from autoscaler.clock import Clock
from autoscaler.controller.budgets.study import StudySpending
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.jobs.holdings import trained_allocation
from autoscaler.controller.jobs.study_starts import note_beginnings
from autoscaler.domain.errors import Conflict, NotAllowed
from autoscaler.domain.instance import Desired, HeldInstance, by_job
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
from autoscaler.domain.trial import StudyStop, TrialAnswer, WaitingCall
from autoscaler.service.files.uploads import TrialFiles
from autoscaler.service.notifier import Notifier
from autoscaler.service.studies.checkpoints import TrialCheckpoints
from autoscaler.service.studies.stays import stays_of_study
from autoscaler.service.studies.trial_ends import note_end
from autoscaler.store.store import Store
from autoscaler.store.studies import unknown_study
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyLease,
    StudyStatement,
    StudyView,
    TrialCalls,
)

_LONGEST_LEASE_SECONDS = 300.0


class Studies:
    """Takes calls of trials in for their driver, and its answers for them."""

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
        self._spending = StudySpending(store)
        self._troubles = ErrorRecord("study")
        self._clock = clock
        self._bells = Notifier()

    def lease(self, study: str, lease: StudyLease) -> StudyStop:
        """Let a driver drive a study; returns whether it is to end it.

        Raises:
            Conflict: another one does.
        """
        require_name(study, "study")
        require_line(lease.holder, "holder")
        require_positive(lease.seconds, "seconds", LONGEST_SECONDS)
        seconds = min(lease.seconds, _LONGEST_LEASE_SECONDS)
        self._store.leases.take(study, lease.holder, self._clock.now(), seconds)
        return self._store.settings.study_stop(study, lease.holder)

    def leave(self, study: str, holder: str) -> None:
        """Take a driver at its word that it drives no more."""
        self._store.leases.leave(study, holder)
        self._store.settings.forget_stop(study, holder)
        self._files.clear(study)

    def stop(self, study: str, at_once: bool) -> None:
        """Have the study's driver end it: it hears so as it renews its lease.

        Raises:
            Conflict: nobody drives it.
        """
        driver = self._store.leases.holder(study, self._clock.now())
        if driver is None:
            raise Conflict(f"study {study} is driven by nobody: there is nothing to stop")
        self._store.settings.stop_study(study, driver, at_once)

    async def calls(
        self, study: str, holder: str, wait_seconds: float, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """What waits for the driver, as soon as it is more than the `beyond` that it knows of.

        Raises:
            Conflict: it does not drive the study.
        """

        def look() -> tuple[WaitingCall, ...]:
            self._check_driver(study, holder)
            waiting = self._store.trials.waiting(study)
            return waiting if len(waiting) > beyond else ()

        return await self._bells.first(f"calls of {study}", look, wait_seconds)

    async def answer(
        self, study: str, given: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Hand answers on; return the calls that wait then, as `calls` does.

        Without `wait_seconds` return none.

        Raises:
            Conflict: it is not the driver who answers.
            UnknownJob: what ended is no trial of the study.
        """

        require_valid_answers(given.answers, given.ended)

        def keep() -> None:
            self._check_driver(study, given.holder)
            for end in given.ended:
                # Before the worker hears of it and exits.
                note_end(self._store, study, end, self._clock.now())
            self._store.trials.answer(given.answers)

        await run_in_threadpool(keep)
        if given.ended:
            self._wake()
        for job in {each.job for each in given.answers}:
            self._bells.ring(f"answers to {job}")
        if not wait_seconds:
            return ()
        return await self.calls(study, given.holder, wait_seconds, beyond)

    def view(self, study: str) -> StudyView:
        """The study as people see it; what can't be read of it is its trouble.

        Raises:
            NotFound: there is none.
        """
        now_seconds, store = self._clock.now(), self._store
        troubles, alive = self._troubles, store.jobs.alive()
        terms = troubles.attempt(study, "terms", partial(store.studies.terms, study))
        own = {job.id for job in alive if job.spec.study == study}
        driver = self._store.leases.holder(study, now_seconds)
        if terms is None and driver is None and not own and study not in troubles.by_subject():
            raise unknown_study(study)
        spent = partial(self._spending.spent, study, alive, now_seconds)
        spent_usd = troubles.attempt(study, "cost", spent)
        trials = troubles.attempt(study, "trials", partial(store.studies.trials, study))
        held = [each for each in self._store.instances.alive() if each.job in own]
        return StudyView(
            name=study,
            driver=driver,
            terms=terms,
            trials=trials or (),
            spent_usd=spent_usd,
            usd_per_hour=sum((each.costing_usd_per_hour for each in held), Decimal(0)),
            trouble={**self._status.study_troubles, **troubles.by_subject()}.get(study),
        )

    def stays(self, study: str) -> tuple[StudyStay, ...]:
        """What its trials held and when."""
        return stays_of_study(self._store, study)

    def set_budget(self, study: str, budget_usd: Decimal) -> None:
        """Take a person's word for what the study may cost.

        Raises:
            NotFound: there is none.
            SpecError: it is no amount.
        """
        require_amount(budget_usd, "budget_usd")
        self._store.studies.set_budget(study, budget_usd)
        self._wake()

    def state(self, study: str, statement: StudyStatement) -> None:
        """Take down the terms of a study and how its trials stand.

        Raises:
            Conflict: it is not the driver who states them.
            UnknownJob: a trial is no job.
        """
        require_valid_statement(statement.terms, statement.trials)
        self._check_driver(study, statement.holder)
        objective = statement.terms.objective.capped(self._study_usd)
        self._store.studies.state(study, replace(statement.terms, objective=objective))
        held = by_job(self._store.instances.alive())
        now_seconds = self._clock.now()
        note_beginnings(self._store, study, held, now_seconds)
        told = [(each, trained_allocation(held.get(each.job, ()))) for each in statement.trials]
        self._store.studies.tell(study, told, now_seconds)
        self._wake()

    def begin(self, held: HeldInstance, job: str | None, started_seconds: float) -> int:
        """Let this start of an instance's script hold its trial, which is `job`.

        Raises:
            NotAllowed: the instance is to leave, or its job is no trial.
            Conflict: a later one holds it, or the instance has become another job's.
        """
        require_held(held, job)
        if held.desired is Desired.ABSENT:
            raise NotAllowed(f"{held.id} is to leave: it takes up no trial")
        self._study(held)
        return self._store.trials.begin(held.job, held.id, started_seconds)

    async def tell(
        self, held: HeldInstance, told: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        """Keep what a trial tells and asks; return the answers beyond number `after`.

        Without `wait_seconds` return none.

        Raises:
            Conflict: a later incarnation holds the trial, or its instance is another job's.
        """
        require_valid_calls(told.incarnation, told.calls)
        require_held(held, told.job)
        keep = self._store.trials.tell
        study = await run_in_threadpool(keep, held.job, told.incarnation, told.calls)
        self._bells.ring(f"calls of {study}")
        if not wait_seconds:
            return ()
        return await self.answers(held, told.job, told.incarnation, after, wait_seconds)

    async def answers(
        self,
        held: HeldInstance,
        job: str | None,
        incarnation: int,
        after: int,
        wait_seconds: float,
    ) -> tuple[TrialAnswer, ...]:
        """What was answered beyond the call of number `after`.

        Raises:
            Conflict: the instance is another job's.
        """
        require_held(held, job)

        def look() -> tuple[TrialAnswer, ...]:
            return self._store.trials.answers(held.job, incarnation, after)

        return await self._bells.first(f"answers to {held.job}", look, wait_seconds)

    async def receive(self, held: HeldInstance, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep a file for the driver.

        Raises:
            SpecError: it is too large, or not what it says.
        """
        await self._files.receive(await run_in_threadpool(self._study, held), sha256, chunks)

    def file(self, study: str, sha256: str) -> Path:
        """A file that a trial handed in. `NotFound`: it did not."""
        return self._files.path(study, sha256)

    def remove_file(self, study: str, sha256: str) -> None:
        """The driver has a file."""
        self._files.remove(study, sha256)

    def remove_checkpoints(self, study: str, trials: Sequence[str]) -> int:
        """Remove what trials have left; returns of how many there was something.

        Raises:
            SpecError: that is no trial.
        """
        return self._checkpoints.remove(study, trials)

    def _check_driver(self, study: str, holder: str) -> None:
        driver = self._store.leases.holder(study, self._clock.now())
        if driver != holder:
            raise Conflict(f"study {study} is driven by {driver or 'nobody'}, not by {holder}")

    def _study(self, held: HeldInstance) -> str:
        study = self._store.jobs.get(held.job).spec.study
        if study is None:
            raise NotAllowed(f"job {held.job} is no trial of a study")
        return study


def require_held(held: HeldInstance, job: str | None) -> None:
    """See that an instance speaks of the job that it works for now.

    Raises:
        Conflict: of one that it has left.
    """
    if job not in (None, held.job):
        raise Conflict(f"{held.id} works for {held.job} by now, not for {job}")
