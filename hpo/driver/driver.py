"""The driver of a study: it alone asks samplers and pruners, and writes to the study's storage.

It is a client of the controller: each trial is a job there, whose worker asks and tells over it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import optuna

from autoscaler.clock import Clock
from autoscaler.domain.errors import StoreError, Unavailable
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.objective import AfterDeadline, Objective
from autoscaler.domain.trial import GivenAnswer, StudyStop, TrialAnswer, TrialEnd, WaitingCall
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import JobView
from autoscaler.wire.study_messages import StudyAnswers, StudyStatement
from hpo.driver.artifacts import StudyArtifacts
from hpo.driver.budget import log_default_budget, settle_budget
from hpo.driver.ended_trials import EndedTrial, end_of
from hpo.driver.lease import Lease
from hpo.driver.progress import Statements
from hpo.driver.retries import enqueue_owed
from hpo.driver.run_limits import Effort, counts_as_failure, ends_study
from hpo.driver.study_end import StudyStopped, require_money, waits_for_ever, what_is_missed
from hpo.driver.trial_jobs import TrialJobs
from hpo.driver.trial_server import Attachment, NotYet, new_attachment, waiting_retry
from hpo.interval import Interval
from hpo.methods.synchronous_halving import SynchronousHalvingPruner
from hpo.optuna_internals import is_stopped, stop
from hpo.protocol.requests import BEGIN, Call, answer_text, read_call, refusal_text
from hpo.storage.retrying import patiently
from hpo.storage.studies import optimizing

_log = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_STATE_SECONDS = 1.0


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
        self._lease = Lease(line, holder, clock)
        self._clock = clock
        self._jobs = TrialJobs(study, template, client)
        self._asked: Attachment | None = None
        pruner = study.pruner
        self._race = pruner if isinstance(pruner, SynchronousHalvingPruner) else None
        self._left_open = 0  # calls that wait for other trials
        # Calls that came with the reply to the last answers: each question takes one request.
        self._arrived: tuple[WaitingCall, ...] = ()
        # By their jobs: the last words of workers whose short trial has ended. The answer is the
        # next trial, or that there is none.
        self._free: dict[str, WaitingCall] = {}
        self._shares_processes = True
        self._until_seconds = float("inf")
        self._deadline_seconds = objective.deadline_seconds or float("inf")
        self._objective = objective
        self._statements = Statements(study, objective)
        self._ends_at_deadline = objective.after_deadline is AfterDeadline.STOP
        self._statings = Interval(_STATE_SECONDS, clock)
        self._may_retry = True
        self._is_over = self._has_warned = False
        self._begun = self._ended_count = self._failures = 0
        self._looks = Interval(_LOOK_SECONDS, clock)
        self.on_end: Callable[[EndedTrial], None] = lambda ended: None
        self.artifacts: StudyArtifacts | None = None
        self.keep_alive: Callable[[], None] = lambda: None

    def run(self, effort: Effort) -> EndedTrial | None:
        """Run trials until the effort is made; returns the one whose error ended it before.

        Raises:
            Conflict: another driver has the study.
            StudyStopped: it was, with the trials that ran.
            BudgetUsedUp: it was, and the trials stay as they are.
            DeadlineReached, NothingRan: the deadline lets no trial begin.
            Unavailable, StoreError: controller or storage was away for too long.
            Exception: what the sampler, the pruner or `constraints_func` raised.
        """
        self._patiently(self._lease.renew)
        try:
            with optimizing(self._study, self._clock, self._lease.keep):
                # An earlier budget is not to end jobs that this driver hands in.
                self._patiently(lambda: settle_budget(self._line, self._objective))
                self._patiently(lambda: self._state(effort))
                self._patiently(lambda: log_default_budget(self._line.view()))
                self._patiently(self._jobs.take_up)
                return self._run(effort)
        finally:
            self._jobs.stop(self._free)
            self._lease.leave()

    def _run(self, effort: Effort) -> EndedTrial | None:
        self._until_seconds = self._clock.monotonic() + (effort.timeout_seconds or float("inf"))
        self._shares_processes = effort.shares_processes
        fatal: EndedTrial | None = None
        while True:
            self._patiently(self._lease.renew)
            if self._lease.stop is StudyStop.AT_ONCE:
                raise StudyStopped("the study was stopped: the next run goes on with its trials")
            if self._lease.stop is StudyStop.WITH_ITS_TRIALS:
                stop(self._study)
            looks = self._looks.is_due()
            begins = self._may_begin(effort)
            self._note_full(not begins)
            if begins:
                if looks or not self._jobs.held or self._is_filling():
                    self._patiently(lambda: self._begin_trial(effort))
            elif not self._jobs.held:
                self._patiently(lambda: self._state(effort))  # how the last one ended
                return fatal
            if self._is_over:
                return fatal
            if self._statings.is_due():
                self._patiently(lambda: self._state(effort))
            answered = self._answer_calls(may_wait=not looks)
            ended = [*answered, *(self._see_ends(effort) if looks else ())]
            for each in ended:
                if self._ends_study(each, effort):
                    fatal = fatal or each
                    stop(self._study)
            self._go_on(effort)

    def _may_begin(self, effort: Effort) -> bool:
        """Return whether a trial is to begin now."""
        is_late = self._clock.monotonic() >= self._until_seconds
        return not (is_late or is_stopped(self._study)) and self._is_to_begin(effort)

    def _ends_study(self, ended: EndedTrial, effort: Effort) -> bool:
        """Count a trial that has ended; returns whether no further one is to begin after it."""
        self.on_end(ended)
        self._ended_count += 1
        self._failures += counts_as_failure(ended)
        if not ends_study(ended, effort.catch, self._failures, effort.max_failures):
            return False
        if ended.asked_error is not None:
            raise ended.asked_error
        return True

    def _is_to_begin(self, effort: Effort) -> bool:
        """Whether a trial is to begin, or to be begun again."""
        return self._may_retry or effort.trials is None or self._begun < effort.trials

    def _patiently(self, act: Callable[[], None]) -> None:
        """Act, and again as long as the controller is away."""
        patiently(act, self._clock, lambda: self.keep_alive())

    def _begin_trial(self, effort: Effort) -> None:
        """Begin a trial if none waits for an instance: one that is asked later knows more."""
        at_work = sum(not each.waits for each in self._jobs.held.values())
        if effort.at_once is not None and at_work >= effort.at_once:
            return
        views = {view.id: view for view in self._client.jobs(include_ended=False)}
        waits = any(
            views[job].phase is JobPhase.PENDING and not views[job].instances
            for job in self._jobs.held.keys() & views.keys()
        )
        if self._is_filling() or not waits:
            self._asked = self._asked or self._next(effort)
            if self._asked is not None:
                self._jobs.hand_in(self._asked)
                self._asked = None  # until then this very trial comes again

    def _is_filling(self) -> bool:
        """Whether trials wait for one that is to begin."""
        return self._race is not None and self._race.is_filling(self._study)

    def _note_full(self, is_full: bool) -> None:
        """Those that wait for each other need not wait for one that will not begin."""
        if self._race is not None and self._race.is_full != is_full:
            self._race.is_full = is_full
            self._left_open = 0

    def _next(self, effort: Effort) -> Attachment | None:
        """The next trial: first those that take the place of others, then so many as are to be."""
        if self._may_retry:
            enqueue_owed(self._study)
            retry = waiting_retry(self._study)
            if retry is not None:
                return retry
            self._may_retry = False
        if not self._is_to_begin(effort):
            return None
        asked = new_attachment(self._study)
        self._begun += 1
        return asked

    def _state(self, effort: Effort) -> None:
        """State what is new of the study."""
        to_begin = None if effort.trials is None else max(effort.trials - self._begun, 0)
        under_way = {job: each.frozen() for job, each in self._jobs.held.items()}
        news = self._statements.news(under_way, to_begin)
        if news is not None:
            statement = StudyStatement(self._lease.holder, *news)
            self._lease.holding(lambda: self._line.state(statement))
            self._statements.were_heard(*news)

    def _answer_calls(self, may_wait: bool) -> list[EndedTrial]:
        """Answer the calls that wait; return the trials that ended by it.

        Where it `may_wait`, and nothing else is to be done, wait for the next calls.
        """
        waiting: tuple[WaitingCall, ...] = ()

        def answer() -> None:
            nonlocal waiting
            self._free = {}
            holder, known = self._lease.holder, self._left_open
            waiting, self._arrived = self._arrived, ()
            waiting = waiting or self._lease.holding(
                lambda: self._line.calls(holder, _WAIT_SECONDS, beyond=known)
            )
            given = [each for each in map(self._answered, waiting) if each is not None]
            if waiting:
                self._left_open = len(waiting) - len(given) - len(self._free)
            if given:
                is_idle = may_wait and not self._ended(waiting)
                self._give(StudyAnswers(holder, tuple(given), self._ends(waiting)), is_idle)

        self._patiently(answer)
        return [self._close(job) for job in self._ended(waiting)]

    def _give(self, answers: StudyAnswers, is_idle: bool) -> None:
        """Give answers; where the driver `is_idle` and no look is due, wait for the next calls."""
        waits = is_idle and self._race is None and not self._looks.is_over
        wait_seconds = _WAIT_SECONDS if waits else 0.0
        self._arrived = self._lease.holding(
            lambda: self._line.answer(answers, wait_seconds, self._left_open)
        )

    def _ends(self, waiting: Iterable[WaitingCall]) -> tuple[TrialEnd, ...]:
        """The ends of the trials that have asked, and ended by it."""
        ended = [job for job in self._ended(waiting) if job not in self._free]
        return tuple(end_of(job, self._jobs.held[job].frozen()) for job in ended)

    def _ended(self, waiting: Iterable[WaitingCall]) -> tuple[str, ...]:
        """The jobs that have asked, and whose trials have ended by it."""
        asking = sorted({each.job for each in waiting} & self._jobs.held.keys())
        return tuple(job for job in asking if self._jobs.held[job].has_ended)

    def _answered(self, waiting: WaitingCall) -> GivenAnswer | None:
        """The answer to a call; None while it waits for other trials, or for its next one."""
        try:
            answer = TrialAnswer(waiting.call.number, self._answer(waiting))
        except NotYet:
            return None
        if waiting.job in self._free:
            return None
        return GivenAnswer(waiting.job, waiting.incarnation, answer)

    def _answer(self, waiting: WaitingCall) -> str:
        job = waiting.job
        try:
            call = read_call(waiting.call.text)
            attachment = self._jobs.trial(job, call.trial)
            attachment.artifacts = self.artifacts
            if call.method == BEGIN:  # another may begin
                self._looks.end()
            value = attachment.answer(call)
            if call.arguments.get("takes_more"):
                present = self._jobs.held.get(job)
                if present is attachment and self._may_follow(attachment):
                    self._free[job] = waiting
                elif present is not None and present is not attachment:  # its answer was lost
                    value = self._facts(present)
            return answer_text(value)
        except (StoreError, Unavailable, NotYet):
            raise
        except Exception as error:  # the objective's to see, as if it ran beside the study
            return refusal_text(error)

    def _may_follow(self, ended: Attachment) -> bool:
        """Return whether the process of a short trial may run another one."""
        is_late = self._clock.now() >= self._deadline_seconds
        return ended.has_ended and self._race is None and self._shares_processes and not is_late

    def _facts(self, trial: Attachment) -> object:
        """Return what a worker is told of its trial."""
        trial.artifacts = self.artifacts
        return trial.answer(Call(BEGIN, {}))

    def _go_on(self, effort: Effort) -> None:
        """Give workers whose short trials have ended the next ones, or tell that there is none."""
        answers: list[GivenAnswer] = []
        ends: list[TrialEnd] = []
        for job, waiting in list(self._free.items()):
            following = self._asked or self._next(effort) if self._may_begin(effort) else None
            self._asked = None
            if following is None:
                ends.append(end_of(job, self._jobs.left[job].frozen()))
                self._looks.end()
            else:
                self._jobs.hold(job, following)
            text = answer_text(None if following is None else self._facts(following))
            answer = TrialAnswer(waiting.call.number, text)
            answers.append(GivenAnswer(job, waiting.incarnation, answer))
            del self._free[job]
        if answers:
            given = StudyAnswers(self._lease.holder, tuple(answers), tuple(ends))
            self._patiently(lambda: self._give(given, is_idle=not ends))

    def _see_ends(self, effort: Effort) -> list[EndedTrial]:
        """Let the trials fail whose jobs have ended without a word; returns them."""
        silent: dict[str, bool] = {}

        def see() -> None:
            alive = {view.id: view for view in self._client.jobs(include_ended=False)}
            for job in self._jobs.held.keys() & alive.keys() - self._jobs.stopping:
                require_money(alive[job])
            self._warn_of(
                what_is_missed(alive[job] for job in self._jobs.held.keys() & alive.keys())
            )
            views = [alive.get(job) for job in self._jobs.held]
            has_run = self._ended_count > 0
            self._is_over = waits_for_ever(views, has_run, self._ends_at_deadline)
            for job in self._jobs.held.keys() - alive.keys() - silent.keys():
                view = self._jobs.view(job)
                if view is not None and not view.phase.is_final:
                    continue
                if job in self._jobs.stopping and not self._jobs.held[job].is_finished:
                    self._jobs.hand_in(self._jobs.held[job])
                    self._jobs.stopping.remove(job)
                    self._jobs.let_go(job)
                    continue
                require_money(view)
                silent[job] = self._fail(job, view, effort)

        self._patiently(see)
        self._patiently(self._end_paused)
        return [self._close(job, is_retried) for job, is_retried in silent.items()]

    def _warn_of(self, missed: str | None) -> None:
        """Log what can't be kept, once: the numbers in it change from plan to plan."""
        if missed is not None and not self._has_warned:
            _log.warning("study %s: %s", self._study.study_name, missed)
            self._has_warned = True

    def _end_paused(self) -> None:
        """End those that go no further and hold nothing: no worker is there to hear of it."""
        for job, attachment in self._jobs.held.items():
            view = self._jobs.view(job) if attachment.is_out else None
            if view is not None and not view.instances:
                attachment.prune()
                end = end_of(job, attachment.frozen())
                self._line.answer(StudyAnswers(self._lease.holder, (), (end,)))

    def _fail(self, job: str, view: JobView | None, effort: Effort) -> bool:
        """Let a trial fail with its job; returns whether it is retried.

        Not so where a person has stopped the job, or its script has ended as if all were well.
        """
        has_failed = view is None or view.phase is JobPhase.FAILED
        cause = (view.cause if view is not None else None) or "its job has ended without a result"
        is_retried = self._jobs.held[job].fail(cause, effort.retries if has_failed else 0)
        self._may_retry = self._may_retry or is_retried
        return is_retried

    def _close(self, job: str, is_retried: bool = False) -> EndedTrial:
        attachment = self._jobs.let_go(job)
        self._left_open = 0  # who waited for it may be answered
        if job not in self._free:
            self._looks.end()
        ended = attachment.frozen()
        self._statements.note_end(job, ended)
        if attachment.study_error is not None:
            raise attachment.study_error
        return EndedTrial(ended, attachment.error_kinds, is_retried, attachment.asked_error)
