"""Driver of a study.

Only the driver calls samplers and pruners and writes to the storage.

The driver is a client of the controller. Each trial is a job there, and its worker's requests
reach the driver through the controller.
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
from hpo.driver.budget import log_default_budget, restore_run_budget
from hpo.driver.ended_trials import EndedTrial, trial_end
from hpo.driver.lease import DriverLease
from hpo.driver.progress import ProgressReporter
from hpo.driver.retries import enqueue_retries
from hpo.driver.run_limits import RunLimits, counts_as_failure, ends_study
from hpo.driver.study_end import (
    StudyStopped,
    is_blocked_by_deadline,
    planner_warning,
    require_budget,
)
from hpo.driver.trial_jobs import TrialJobs
from hpo.driver.trial_server import (
    AnswerPending,
    TrialServer,
    begin_new_trial,
    begin_waiting_retry,
)
from hpo.interval import Interval
from hpo.optuna_internals import is_stopped, stop
from hpo.protocol.requests import BEGIN, TrialRequest, answer_text, error_text, parse_request
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.storage.retrying import retry_until_available
from hpo.storage.studies import optimization_context

_log = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
_POLL_SECONDS = 1.0
_REPORT_SECONDS = 1.0


class Driver:
    """Driver of one study until the limits of a run are reached."""

    def __init__(
        self,
        study: optuna.Study,
        template: JobSpec,
        client: Client,
        study_client: StudyClient,
        holder: str,
        clock: Clock,
        objective: Objective = Objective(),
    ) -> None:
        """Set up a driver for the study as a whole.

        Args:
            study: the study.
            template: the job of each trial except for its name; the template's name is the
                study's.
            client: client for jobs.
            study_client: client for the requests of trials.
            holder: name of this driver at the controller.
            clock: source of time.
            objective: budget and deadline of the study as a whole.
        """
        self._study = study
        self._client = client
        self._study_client = study_client
        self._lease = DriverLease(study_client, holder, clock)
        self._clock = clock
        self._jobs = TrialJobs(study, template, client, self._lease)
        self._pending_trial: TrialServer | None = None
        pruner = study.pruner
        self._synchronous_pruner = pruner if isinstance(pruner, SynchronousHalvingPruner) else None
        self._deferred_count = 0  # calls that wait for other trials
        # Calls in the response to the last answers, which saves a request.
        self._arrived: tuple[WaitingCall, ...] = ()
        # `end` calls of workers whose short trial has ended, by job. The answer is the next
        # trial, or None.
        self._awaiting_next_trial: dict[str, WaitingCall] = {}
        self._shares_processes = True
        self._until_seconds = float("inf")
        self._deadline_seconds = objective.deadline_seconds or float("inf")
        self._objective = objective
        self._progress_reporter = ProgressReporter(study, objective)
        self._ends_at_deadline = objective.after_deadline is AfterDeadline.STOP
        self._report_interval = Interval(_REPORT_SECONDS, clock)
        self._may_retry = True
        self._is_over = self._has_warned = False
        self._begun = self._ended_count = self._failures = 0
        self._poll_interval = Interval(_POLL_SECONDS, clock)
        self.on_end: Callable[[EndedTrial], None] = lambda ended: None
        self.artifacts: StudyArtifacts | None = None
        self.keep_alive: Callable[[], None] = lambda: None

    def run(self, limits: RunLimits) -> EndedTrial | None:
        """Run trials until a limit is reached.

        Return the trial whose failure ended the run, else None.

        Raises:
            Conflict: another driver holds the study's lease.
            StudyStopped: a user stopped the study and its running trials.
            BudgetUsedUp: the budget is used up; the trials stay open.
            DeadlineReached, NothingRan: the deadline lets no trial begin.
            Unavailable, StoreError: the controller or the storage was unavailable for too long.
            Exception: an error of the sampler, the pruner or `constraints_func`.
        """
        self._retry(self._lease.renew)
        try:
            with optimization_context(self._study, self._clock, self._lease.renew_if_available):
                # A smaller budget of an earlier run must not end the jobs of this one.
                self._retry(lambda: restore_run_budget(self._study_client, self._objective))
                self._retry(lambda: self._report_progress(limits))
                self._retry(lambda: log_default_budget(self._study_client.view()))
                self._retry(self._jobs.resume_running_trials)
                return self._run(limits)
        finally:
            if not self._lease.is_lost:  # or else the jobs are those of another driver
                self._jobs.stop(self._awaiting_next_trial)
                self._lease.release()

    def _run(self, limits: RunLimits) -> EndedTrial | None:
        self._until_seconds = self._clock.monotonic() + (limits.timeout_seconds or float("inf"))
        self._shares_processes = limits.shares_processes
        fatal: EndedTrial | None = None
        while True:
            self._retry(self._lease.renew)
            if self._lease.stop is StudyStop.AT_ONCE:
                raise StudyStopped("the study was stopped: the next run continues its trials")
            if self._lease.stop is StudyStop.WITH_ITS_TRIALS:
                stop(self._study)
            is_poll_due = self._poll_interval.is_due()
            may_begin = self._may_begin(limits)
            self._note_full(not may_begin)
            if may_begin:
                if is_poll_due or not self._jobs.held or self._group_needs_trials():
                    self._retry(lambda: self._begin_trial(limits))
            elif not self._jobs.held:
                self._retry(lambda: self._report_progress(limits))  # the end of the last trial
                return fatal
            if self._is_over:
                return fatal
            if self._report_interval.is_due():
                self._retry(lambda: self._report_progress(limits))
            answered = self._answer_calls(may_wait=not is_poll_due)
            ended = [*answered, *(self._detect_failed_jobs(limits) if is_poll_due else ())]
            for trial in ended:
                if self._ends_study(trial, limits):
                    fatal = fatal or trial
                    stop(self._study)
            self._start_next_short_trials(limits)

    def _may_begin(self, limits: RunLimits) -> bool:
        """Return whether a trial may begin now."""
        is_late = self._clock.monotonic() >= self._until_seconds
        return not (is_late or is_stopped(self._study)) and self._is_to_begin(limits)

    def _ends_study(self, ended: EndedTrial, limits: RunLimits) -> bool:
        """Count an ended trial; return whether no further trial may begin after it."""
        self.on_end(ended)
        self._ended_count += 1
        self._failures += counts_as_failure(ended)
        if not ends_study(ended, limits.catch, self._failures, limits.max_failures):
            return False
        if ended.method_error is not None:
            raise ended.method_error
        return True

    def _is_to_begin(self, limits: RunLimits) -> bool:
        """Return whether the run still has trials or retries to begin."""
        return self._may_retry or limits.trials is None or self._begun < limits.trials

    def _retry(self, act: Callable[[], None]) -> None:
        """Call `act`, and retry while the controller is unavailable."""
        retry_until_available(act, self._clock, lambda: self.keep_alive())

    def _begin_trial(self, limits: RunLimits) -> None:
        """Begin a trial if no trial waits for an instance.

        A later suggestion uses more results.
        """
        active_count = sum(not server.waits for server in self._jobs.held.values())
        if limits.at_once is not None and active_count >= limits.at_once:
            return
        views = {view.id: view for view in self._client.jobs(include_ended=False)}
        waits = any(
            views[job].phase is JobPhase.PENDING and not views[job].instances
            for job in self._jobs.held.keys() & views.keys()
        )
        if self._group_needs_trials() or not waits:
            self._pending_trial = self._pending_trial or self._next(limits)
            if self._pending_trial is not None:
                self._jobs.submit_trial(self._pending_trial)
                self._pending_trial = None  # kept until the submission has succeeded

    def _group_needs_trials(self) -> bool:
        """Return whether trials wait for another trial to begin."""
        return (
            self._synchronous_pruner is not None
            and self._synchronous_pruner.is_group_incomplete(self._study)
        )

    def _note_full(self, is_full: bool) -> None:
        """Tell the synchronous pruner whether more trials will begin."""
        if self._synchronous_pruner is not None and self._synchronous_pruner.is_full != is_full:
            self._synchronous_pruner.is_full = is_full
            self._deferred_count = 0

    def _next(self, limits: RunLimits) -> TrialServer | None:
        """Return the next trial: a retry, then a new trial within the limits; None without one."""
        if self._may_retry:
            enqueue_retries(self._study)
            retry = begin_waiting_retry(self._study)
            if retry is not None:
                return retry
            self._may_retry = False
        if not self._is_to_begin(limits):
            return None
        new_trial = begin_new_trial(self._study)
        self._begun += 1
        return new_trial

    def _report_progress(self, limits: RunLimits) -> None:
        """Report the changes of the study to the controller."""
        to_begin = None if limits.trials is None else max(limits.trials - self._begun, 0)
        under_way = {job: server.frozen() for job, server in self._jobs.held.items()}
        changes = self._progress_reporter.changes(under_way, to_begin)
        if changes is not None:
            statement = StudyStatement(self._lease.holder, *changes)
            self._lease.call_with_lease(lambda: self._study_client.state(statement))
            self._progress_reporter.acknowledge(*changes)

    def _answer_calls(self, may_wait: bool) -> list[EndedTrial]:
        """Answer the waiting calls; return the trials that ended by them.

        If `may_wait`, and no other work is due, wait for the next calls.
        """
        waiting: tuple[WaitingCall, ...] = ()

        def answer() -> None:
            nonlocal waiting
            self._awaiting_next_trial = {}
            holder, known = self._lease.holder, self._deferred_count
            waiting, self._arrived = self._arrived, ()
            waiting = waiting or self._lease.call_with_lease(
                lambda: self._study_client.calls(holder, _WAIT_SECONDS, beyond=known)
            )
            answers = [
                given_answer
                for given_answer in map(self._answered, waiting)
                if given_answer is not None
            ]
            if waiting:
                self._deferred_count = len(waiting) - len(answers) - len(self._awaiting_next_trial)
            if answers:
                is_idle = may_wait and not self._ended(waiting)
                self._give(StudyAnswers(holder, tuple(answers), self._ends(waiting)), is_idle)

        self._retry(answer)
        return [self._close(job) for job in self._ended(waiting)]

    def _give(self, answers: StudyAnswers, is_idle: bool) -> None:
        """Send answers; if the driver `is_idle` and no poll is due, wait for the next calls."""
        waits = is_idle and self._synchronous_pruner is None and not self._poll_interval.is_over
        wait_seconds = _WAIT_SECONDS if waits else 0.0
        self._arrived = self._lease.call_with_lease(
            lambda: self._study_client.answer(answers, wait_seconds, self._deferred_count)
        )

    def _ends(self, waiting: Iterable[WaitingCall]) -> tuple[TrialEnd, ...]:
        """Return the ends of trials to report with the answers.

        Trials whose worker gets another trial are left out.
        """
        ended = [job for job in self._ended(waiting) if job not in self._awaiting_next_trial]
        return tuple(trial_end(job, self._jobs.held[job].frozen()) for job in ended)

    def _ended(self, waiting: Iterable[WaitingCall]) -> tuple[str, ...]:
        """Return the calling jobs whose trials have ended."""
        asking = sorted({call.job for call in waiting} & self._jobs.held.keys())
        return tuple(job for job in asking if self._jobs.held[job].has_ended)

    def _answered(self, waiting: WaitingCall) -> GivenAnswer | None:
        """Return the answer to a call; None if it is pending or becomes the next trial."""
        try:
            answer = TrialAnswer(waiting.call.number, self._answer(waiting))
        except AnswerPending:
            return None
        if waiting.job in self._awaiting_next_trial:
            return None
        return GivenAnswer(waiting.job, waiting.incarnation, answer)

    def _answer(self, waiting: WaitingCall) -> str:
        job = waiting.job
        try:
            call = parse_request(waiting.call.text)
            server = self._jobs.trial(job, call.trial)
            server.artifacts = self.artifacts
            if call.method == BEGIN:  # the next trial may begin
                self._poll_interval.end()
            value = server.answer(call)
            if call.arguments.get("takes_more"):
                present = self._jobs.held.get(job)
                if present is server and self._may_follow(server):
                    self._awaiting_next_trial[job] = waiting
                elif present is not None and present is not server:  # the answer was lost
                    value = self._describe(present)
            return answer_text(value)
        except (StoreError, Unavailable, AnswerPending):
            raise
        except Exception as error:  # raised in the objective, as in `study.optimize`
            return error_text(error)

    def _may_follow(self, ended: TrialServer) -> bool:
        """Return whether the process of a short trial may run another trial."""
        is_late = self._clock.now() >= self._deadline_seconds
        return (
            ended.has_ended
            and self._synchronous_pruner is None
            and self._shares_processes
            and not is_late
        )

    def _describe(self, trial: TrialServer) -> object:
        """Return the description of a trial for its worker."""
        trial.artifacts = self.artifacts
        return trial.answer(TrialRequest(BEGIN, {}))

    def _start_next_short_trials(self, limits: RunLimits) -> None:
        """Give each free worker of a short trial the next trial, or report that there is none."""
        answers: list[GivenAnswer] = []
        ends: list[TrialEnd] = []
        for job, waiting in list(self._awaiting_next_trial.items()):
            following = (
                self._pending_trial or self._next(limits) if self._may_begin(limits) else None
            )
            self._pending_trial = None
            if following is None:
                ends.append(trial_end(job, self._jobs.left[job].frozen()))
                self._poll_interval.end()
            else:
                self._jobs.assign_trial(job, following)
            text = answer_text(None if following is None else self._describe(following))
            answer = TrialAnswer(waiting.call.number, text)
            answers.append(GivenAnswer(job, waiting.incarnation, answer))
            del self._awaiting_next_trial[job]
        if answers:
            given = StudyAnswers(self._lease.holder, tuple(answers), tuple(ends))
            self._retry(lambda: self._give(given, is_idle=not ends))

    def _detect_failed_jobs(self, limits: RunLimits) -> list[EndedTrial]:
        """Fail the trials whose jobs have ended without a report; return these trials."""
        silent: dict[str, bool] = {}

        def detect() -> None:
            alive = {view.id: view for view in self._client.jobs(include_ended=False)}
            for job in self._jobs.held.keys() & alive.keys() - self._jobs.stopping:
                require_budget(alive[job])
            self._warn_once(
                planner_warning(alive[job] for job in self._jobs.held.keys() & alive.keys())
            )
            views = [alive.get(job) for job in self._jobs.held]
            has_run = self._ended_count > 0
            self._is_over = is_blocked_by_deadline(views, has_run, self._ends_at_deadline)
            for job in self._jobs.held.keys() - alive.keys() - silent.keys():
                view = self._jobs.view(job)
                if view is not None and not view.phase.is_final:
                    continue
                if job in self._jobs.stopping and not self._jobs.held[job].is_finished:
                    self._jobs.submit_trial(self._jobs.held[job])
                    self._jobs.stopping.remove(job)
                    self._jobs.release_trial(job)
                    continue
                require_budget(view)
                silent[job] = self._fail(job, view, limits)

        self._retry(detect)
        self._retry(self._end_eliminated)
        return [self._close(job, is_retried) for job, is_retried in silent.items()]

    def _warn_once(self, missed: str | None) -> None:
        """Log the planner's warning once; its numbers change from plan to plan."""
        if missed is not None and not self._has_warned:
            _log.warning("study %s: %s", self._study.study_name, missed)
            self._has_warned = True

    def _end_eliminated(self) -> None:
        """End eliminated trials that hold no instance, since no worker will report them."""
        for job, server in self._jobs.held.items():
            view = self._jobs.view(job) if server.is_eliminated else None
            if view is not None and not view.instances:
                server.prune()
                end = trial_end(job, server.frozen())
                self._study_client.answer(StudyAnswers(self._lease.holder, (), (end,)))

    def _fail(self, job: str, view: JobView | None, limits: RunLimits) -> bool:
        """Fail a trial with its job; return whether a retry follows.

        No retry follows if a person stopped the job, or if its script ended without an error.
        """
        has_failed = view is None or view.phase is JobPhase.FAILED
        cause = (view.cause if view is not None else None) or "its job has ended without a result"
        is_retried = self._jobs.held[job].fail(cause, limits.retries if has_failed else 0)
        self._may_retry = self._may_retry or is_retried
        return is_retried

    def _close(self, job: str, is_retried: bool = False) -> EndedTrial:
        server = self._jobs.release_trial(job)
        self._deferred_count = 0  # calls that waited for this trial may be answered now
        if job not in self._awaiting_next_trial:
            self._poll_interval.end()
        ended = server.frozen()
        self._progress_reporter.record_end(job, ended)
        if server.study_error is not None:
            raise server.study_error
        return EndedTrial(ended, server.error_kinds, is_retried, server.method_error)
