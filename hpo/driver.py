"""The driver of a study: it alone asks samplers and pruners, and writes to the study's storage.

It is a client of the controller: each trial is a job there, whose worker asks and tells over it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, Unavailable, UnknownJob
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import budget_used_up
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, WaitingCall
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import JobView, StudyAnswers, StudyLease, StudyStatement
from hpo import calls
from hpo.attachment import (
    Attachment,
    is_stopped,
    new_attachment,
    optimizing,
    running_attachments,
    stop,
)
from hpo.calls import answer_text, read_call, refusal_text
from hpo.patience import PATIENCE_SECONDS
from hpo.stating import Statements

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

LEASE_SECONDS: Final = 30.0
_RENEW_SECONDS = 10.0
_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_STATE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a study is to do: trials that begin in this run, how many at once, how long.

    `trials` None: until it is stopped. `at_once` None: as many as get an instance. After
    `timeout_seconds` none begins any more, and those that run go on to their ends. An error of an
    objective that is not of the kinds in `catch` lets no further trial begin, too.
    """

    trials: int | None = None
    at_once: int | None = None
    timeout_seconds: float | None = None
    catch: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that has ended, and the kinds of the error that its objective raised, if any."""

    frozen: FrozenTrial
    error_kinds: tuple[str, ...] = ()


class Driver:
    """Drives one study from where it stands until its effort is made."""

    def __init__(
        self,
        study: optuna.Study,
        template: JobSpec,
        client: Client,
        line: StudyClient,
        holder: str,
        clock: Clock,
        objective: Objective = Objective(),
    ) -> None:
        """`template` is the job of every trial but for its name, which is the study's there.

        `objective` is of the study as a whole.
        """
        self._study = study
        self._template = template
        self._client = client
        self._line = line
        self._holder = holder
        self._clock = clock
        self._held: dict[str, Attachment] = {}
        self._asked: Attachment | None = None
        self._stopping: set[str] = set()
        self._left: dict[
            str, Attachment
        ] = {}  # what earlier jobs of a trial have said still counts
        self._begun = 0
        self._statements = Statements(study, objective)
        self._stated_seconds = -_STATE_SECONDS
        self._renewed_seconds = -_RENEW_SECONDS
        self._looked_seconds = -_LOOK_SECONDS
        self.is_out_of_money = False
        self.on_end: Callable[[EndedTrial], None] = lambda ended: None
        self.keep_alive: Callable[[], None] = lambda: None

    def run(self, effort: Effort) -> EndedTrial | None:
        """Run trials until the effort is made; returns the one whose error ended it before.

        Raises:
            Conflict: another driver has the study.
            Unavailable, StorageInternalError: controller or storage was away for too long.
        """
        self._patiently(self._renew)
        try:
            with optimizing(self._study, self._clock, self._keep_lease):
                self._patiently(self._take_up)
                return self._run(effort)
        finally:
            self._stop_jobs()
            self._leave()

    def _run(self, effort: Effort) -> EndedTrial | None:
        until_seconds = self._clock.monotonic() + (effort.timeout_seconds or float("inf"))
        fatal: EndedTrial | None = None
        while True:
            self._patiently(self._renew)
            is_made = effort.trials is not None and self._begun >= effort.trials
            is_late = self._clock.monotonic() >= until_seconds
            if not (is_made or is_late or is_stopped(self._study)):
                self._patiently(lambda: self._begin_trial(effort))
            elif not self._held:
                return fatal
            if self.is_out_of_money:
                return fatal
            self._patiently(lambda: self._state(effort))
            ended = [*self._answer_calls(), *self._see_ends()]
            for each in ended:
                self.on_end(each)
                if each.error_kinds and not effort.catch.intersection(each.error_kinds):
                    fatal = fatal or each
                    stop(self._study)

    def _patiently(self, act: Callable[[], None]) -> None:
        """Act, and again as long as the controller is away."""
        pause_seconds, waited_seconds = 0.25, 0.0
        while True:
            try:
                return act()
            except Unavailable as error:
                if waited_seconds > PATIENCE_SECONDS:
                    raise
                _log.warning("the controller is away, again in %g s: %s", pause_seconds, error)
                self.keep_alive()
                self._clock.sleep(pause_seconds)
                waited_seconds += pause_seconds
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _as_driver(self, call: Callable[[], Value]) -> Value:
        """What only the driver may do. If its lease ran out, for it slept, it is taken again.

        Raises:
            Conflict: another driver has the study by now.
        """
        try:
            return call()
        except Conflict:
            self._lease()
            return call()

    def _renew(self) -> None:
        if self._clock.monotonic() - self._renewed_seconds >= _RENEW_SECONDS:
            self._lease()

    def _lease(self) -> None:
        self._line.lease(StudyLease(self._holder, LEASE_SECONDS))
        self._renewed_seconds = self._clock.monotonic()

    def _keep_lease(self) -> None:
        """Stay the driver while the storage is waited for."""
        with contextlib.suppress(Unavailable):
            self._renew()

    def _leave(self) -> None:
        try:
            self._line.leave(self._holder)
        except CastorError as error:
            _log.warning("the study's lease is left to run out: %s", error)

    def _take_up(self) -> None:
        """Hold the trials that an earlier driver left: their jobs run on, or are begun again.

        One that is being stopped, as by that driver's end, is begun again when it has ended.
        """
        for job, attachment in running_attachments(self._study).items():
            if job not in self._held:
                view = self._job(job)
                if view is None or view.phase.is_final:
                    self._left[job] = attachment
                    self._hand_in(attachment)
                    continue
                self._held[job] = attachment
                if view.phase is JobPhase.STOPPING:
                    self._stopping.add(job)

    def _job(self, job: str) -> JobView | None:
        """The job of a trial of this study; None if there is none of that id."""
        try:
            view = self._client.job(job)
        except UnknownJob:
            return None
        return view if view.study == self._template.study else None

    def _begin_trial(self, effort: Effort) -> None:
        """Begin a trial if none waits for an instance: one that is asked later knows more."""
        if effort.at_once is not None and len(self._held) >= effort.at_once:
            return
        if self._held and not self._is_time_to_look():
            return
        views = {view.id: view for view in self._client.jobs(include_ended=False)}
        self._see_money(views[job] for job in self._held if job in views)
        if self.is_out_of_money:
            return
        if not any(job in views and views[job].phase is JobPhase.PENDING for job in self._held):
            self._asked = self._asked or new_attachment(self._study)
            self._hand_in(self._asked)  # if the controller is away, this very trial comes again
            self._asked = None
            self._begun += 1

    def _state(self, effort: Effort) -> None:
        """State what is new of the study, but not too often."""
        now_seconds = self._clock.monotonic()
        if now_seconds - self._stated_seconds < _STATE_SECONDS:
            return
        to_begin = None if effort.trials is None else max(effort.trials - self._begun, 0)
        under_way = {job: each.frozen() for job, each in self._held.items()}
        news = self._statements.news(under_way, to_begin)
        if news is not None:
            statement = StudyStatement(self._holder, *news)
            self._as_driver(lambda: self._line.state(statement))
            self._statements.were_heard(*news)
        self._stated_seconds = now_seconds

    def _is_time_to_look(self) -> bool:
        now_seconds = self._clock.monotonic()
        if now_seconds - self._looked_seconds < _LOOK_SECONDS:
            return False
        self._looked_seconds = now_seconds
        return True

    def _hand_in(self, attachment: Attachment) -> None:
        """Submit the job of a trial. Its name is noted first, so that it is found again."""
        name = f"{self._template.name}-{attachment.number}"
        attachment.bind(name)
        try:
            view: JobView | None = self._client.submit(replace(self._template, name=name))
        except Conflict:  # it was submitted, and whoever did so died before it was written down
            view = self._job(name)
            if view is None:
                raise
        assert view is not None
        attachment.bind(view.id)
        self._held[view.id] = attachment

    def _answer_calls(self) -> list[EndedTrial]:
        """Answer what waits; returns the trials that ended by it."""
        waiting: tuple[WaitingCall, ...] = ()

        def answer() -> None:
            nonlocal waiting
            waiting = self._as_driver(lambda: self._line.calls(self._holder, _WAIT_SECONDS))
            if waiting:
                ended = {each.job for each in waiting if _is_end(each)}
                answers = StudyAnswers(
                    self._holder, tuple(map(self._answered, waiting)), tuple(sorted(ended))
                )
                self._as_driver(lambda: self._line.answer(answers))

        self._patiently(answer)
        ended = {each.job for each in waiting if _is_end(each) and each.job in self._held}
        return [self._close(job) for job in sorted(ended)]

    def _answered(self, waiting: WaitingCall) -> GivenAnswer:
        answer = TrialAnswer(waiting.call.number, self._answer(waiting))
        return GivenAnswer(waiting.job, waiting.incarnation, answer)

    def _answer(self, waiting: WaitingCall) -> str:
        attachment = self._held.get(waiting.job) or self._left.get(waiting.job)
        if attachment is None:
            return refusal_text(RuntimeError(f"job {waiting.job} is no trial that is under way"))
        try:
            return answer_text(attachment.answer(read_call(waiting.call.text)))
        except StorageInternalError:
            raise
        except Exception as error:  # the objective's to see, as if it ran beside the study
            return refusal_text(error)

    def _see_ends(self) -> list[EndedTrial]:
        """Let the trials fail whose jobs have ended without a word; returns them."""
        if not self._is_time_to_look():
            return []
        silent: list[str] = []

        def see() -> None:
            alive = {view.id for view in self._client.jobs(include_ended=False)}
            for job in self._held.keys() - alive - set(silent):
                view = self._job(job)
                if view is not None and not view.phase.is_final:
                    continue
                self._see_money([view] if view is not None else [])
                if self.is_out_of_money:
                    return
                if job in self._stopping and not self._held[job].is_finished:
                    self._hand_in(self._held[job])
                    self._stopping.remove(job)
                    self._left[job] = self._held.pop(job)
                    continue
                cause = view.cause if view is not None else None
                self._held[job].fail(cause or "its job has ended without a result")
                silent.append(job)

        self._patiently(see)
        return [self._close(job) for job in silent]

    def _see_money(self, views: Iterable[JobView]) -> None:
        """Trials of a study that can't pay for them stay as they are, for when it can."""
        if any(view.cause == budget_used_up(self._line.study) for view in views):
            self.is_out_of_money = True

    def _close(self, job: str) -> EndedTrial:
        attachment = self._held.pop(job)
        self._looked_seconds = -_LOOK_SECONDS
        ended = attachment.frozen()
        self._statements.note_end(job, ended)
        return EndedTrial(ended, attachment.error_kinds)

    def _stop_jobs(self) -> None:
        """End what still runs; its trials stay as they are, and the next driver takes them up."""
        for job in self._held:
            try:
                self._client.stop(job)
            except Conflict:
                continue
            except CastorError as error:
                _log.error("job %s may still run: %s", job, error)


def _is_end(waiting: WaitingCall) -> bool:
    return read_call(waiting.call.text).method == calls.END


def log_end(ended: EndedTrial) -> None:
    """Say how a trial ended, as Optuna says it."""
    trial = ended.frozen
    match trial.state:
        case TrialState.COMPLETE:
            _log.info("trial %d: %s with %s", trial.number, trial.values, trial.params)
        case TrialState.PRUNED:
            _log.info("trial %d was pruned at step %s", trial.number, trial.last_step)
        case _:
            _log.warning("trial %d failed: %s", trial.number, cause_of(trial))


def cause_of(trial: FrozenTrial) -> str:
    """Why a trial failed."""
    return str(trial.user_attrs.get("castor:cause", "its cause is not known"))
