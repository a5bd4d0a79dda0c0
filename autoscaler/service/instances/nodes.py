"""Requests of node agents: joins, heartbeats and assignments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.controller.act.idle_instances import needs_light
from autoscaler.controller.act.job_end import (
    has_done_its_part,
)
from autoscaler.controller.budgets.leave_limits import script_seconds
from autoscaler.controller.clock_jumps import awaits_retry
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.gangs import (
    in_instances,
    phase_in_gang,
    place_of,
    start_facts,
)
from autoscaler.controller.jobs.sessions import (
    first_starter,
    has_opened_session,
    is_without_session,
    session_facts,
    sessionless_text,
)
from autoscaler.controller.offers.false_starts import give_up
from autoscaler.controller.offers.networks import waits_for_network
from autoscaler.domain.activity import Activity
from autoscaler.domain.errors import (
    NotAllowed,
    NotFound,
    ProviderError,
    SpecError,
    Unavailable,
)
from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangStart
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.intent import IntentKind
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import MOST_REASON_LETTERS, Failure, ReportOrigin
from autoscaler.domain.storage import StorageGrant
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.identities import Identities
from autoscaler.service.instances.assignments import Assignments
from autoscaler.service.instances.gpu_uses import GpuUses
from autoscaler.service.instances.world_replies import WorldReplies
from autoscaler.service.notifier import Notifier
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store
from autoscaler.wire.messages import (
    Assignment,
    JoinReply,
    JoinRequest,
    NodeReply,
    NodeReport,
    Wanted,
)
from providers.identity import IdentityVerifier

_EVENTS_LOOKED_AT = 200  # several times the events of one heartbeat
_ENDS_BADLY = (JobPhase.FAILED, JobPhase.STOPPED)


@dataclass(frozen=True, slots=True)
class TakenReport:
    """A report that was stored, with its instance before and after it.

    `is_news`: the controller should plan anew.
    """

    before: HeldInstance
    after: HeldInstance
    report: NodeReport
    is_news: bool


class Nodes:
    """Server of the node agents."""

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        assignments: Assignments,
        status: ControllerStatus,
        wake: Callable[[], None],
        clock: Clock,
        heartbeat_seconds: float,
        lease_seconds: float,
        least_drain_seconds: float,
        verifiers: Mapping[str, IdentityVerifier | None] | None = None,
    ) -> None:
        self._store = store
        self._authentication = authentication
        self._assignments = assignments
        self._study_numbers: dict[str, int] = {}
        self._status = status
        self._wake = wake
        self._clock = clock
        self._heartbeat_seconds = heartbeat_seconds
        self._lease_seconds = lease_seconds
        self._least_drain_seconds = least_drain_seconds
        self._identities = Identities({} if verifiers is None else verifiers)
        self._worlds = WorldReplies(store)
        self._notifier = Notifier()
        self.gpu_uses = GpuUses()
        self._first_start = threading.Lock()

    def join(self, request: JoinRequest) -> JoinReply:
        """Let an instance join, and return its assignment.

        The token is used up last, so that an instance without an assignment may join again.

        Raises:
            NotAllowed: the token or the proof of identity is invalid, or the instance lacks GPUs.
            SpecError: a secret of the job can't be found; this fails the job's set-up.
            Unavailable: the instance's identity is not known yet.
        """
        candidate = self._candidate(request)
        self._require_accelerators(candidate, request.accelerators)
        assignment = self._first_assignment(candidate)
        token = self._authentication.join(request.token, request.instance, request.key)
        self._store.instances.record_node(
            request.instance, InstancePhase.PREPARING, self._clock.now()
        )
        self._wake()
        return JoinReply(
            token=token,
            assignment=assignment,
            heartbeat_seconds=self._heartbeat_seconds,
            lease_seconds=self._lease_seconds,
            drain_seconds=self._drain_seconds(self._store.jobs.get(candidate.job)),
        )

    def _candidate(self, request: JoinRequest) -> HeldInstance:
        """Return the joining instance.

        Record a refusal as an event, as the instance soon powers off.
        """
        named = self._authentication.named(request.token, request.instance)
        try:
            candidate = self._authentication.candidate(
                request.token, request.instance, request.key
            )
            offer = self._offer(candidate.offer)
            self._identities.check(candidate, offer.provider, request.proof)
        except NotAllowed as error:
            self._add_event_once(named, "join refused", str(error), self._clock.now())
            raise
        return candidate

    def _require_accelerators(self, held: HeldInstance, listed: int | None) -> None:
        """Give up an instance whose driver lists fewer GPUs than its offer has.

        `listed` None: not counted. It counts as a false start of the offer.

        Raises:
            NotAllowed: the instance lacks GPUs.
        """
        offer = self._offer(held.offer)
        if listed is None or listed >= offer.devices or offer.is_cpu:
            return
        cause = f"its driver lists {listed} of {offer.devices} {offer.device_kind} devices"
        if held.given_up_cause is None:
            give_up(self._store, held, cause, self._clock.now())
            self._wake()
        raise NotAllowed(
            f"{held.id} is ended: {cause}: check the image's driver with nvidia-smi on "
            f"{offer.instance_type}"
        )

    def _first_assignment(self, held: HeldInstance) -> Assignment:
        """Return the assignment of an instance; record a SpecError as a failure of the set-up."""
        try:
            return self._assignment(held)
        except SpecError as error:
            attempt = self._store.jobs.get(held.job).attempt
            cause = str(error)
            failure = Failure(held.id, attempt, 1, cause, cause, steps=0, during_setup=True)
            self._fail(held, failure, self._clock.now())
            self._wake()
            raise

    def assignment(self, held: HeldInstance) -> Assignment:
        """Return the current assignment of an instance.

        Raises:
            SpecError: a secret of the job can't be found; this fails the job's set-up.
            Unavailable: the lighthouse or the offer is not known yet.
        """
        return self._first_assignment(held)

    def _assignment(self, held: HeldInstance) -> Assignment:
        job = self._store.jobs.get(held.job)
        if not job.lighthouse and needs_light(job, (held,)):
            raise Unavailable(f"the lighthouse of {job.id} is being lit")
        offer = self._offer(held.offer)
        with self._reporting_storage_errors(held):
            return self._assignments.assignment(job, held, offer, self._user_number(job))

    def _user_number(self, job: JobRecord) -> int:
        """Return the number of a job's OS user.

        Trials of a study share one, since they write to the same checkpoints. Job numbers are
        unique and grow, so the first job of the study determines the number.
        """
        study = job.spec.study
        if study is None:
            return job.number
        if study not in self._study_numbers:
            numbers = (other.number for other in self._store.jobs.of_study(study))
            self._study_numbers[study] = min(numbers)
        return self._study_numbers[study]

    def grant(self, held: HeldInstance) -> StorageGrant:
        """Return a renewed grant for the storage of the instance's job.

        Raises:
            NotFound: the job's files are not in storage.
            Unavailable: the cloud does not grant access now; an event has the reason.
        """
        with self._reporting_storage_errors(held):
            return self._assignments.grant(self._store.jobs.get(held.job))

    @contextmanager
    def _reporting_storage_errors(self, held: HeldInstance) -> Iterator[None]:
        """Record a storage error of the body as an event of the job, and raise Unavailable."""
        try:
            yield
        except NotFound:
            raise
        except ProviderError as error:
            text = f"no leave for the job's storage: {error}"
            self._add_event_once(held, "storage", text, self._clock.now())
            raise Unavailable(text) from error

    def take_report(
        self, held: HeldInstance, report: NodeReport, refused: Sequence[str] = ()
    ) -> TakenReport:
        """Store the report of an instance, in transactions that may be committed together.

        `refused` lists the invalid parts of the report; each is recorded as an event once.

        Raises:
            NotAllowed: the report is from another instance.
        """
        if report.instance != held.id:
            raise NotAllowed(f"the token of {held.id} is not valid for {report.instance}")
        now_seconds = self._clock.now()
        job = report.job or held.job
        self.gpu_uses.note(held.id, report.gpu_use)
        facts: dict[str, str] = {}
        if report.is_done:
            facts[Fact.DONE] = str(report.attempt)
        if report.is_complete and held.completed_seconds is None:
            facts[Fact.COMPLETE] = str(now_seconds)
        if report.ending is not None:
            facts[Fact.SCRIPT_END] = report.ending.value
        if report.stop_reason is not None:
            facts[Fact.STOP_REASON] = report.stop_reason[:MOST_REASON_LETTERS]
        facts |= _activity_facts(held, report.activity)
        facts |= session_facts(held, report.phase, report.has_session, now_seconds)
        facts |= self._worlds.facts(held, report, now_seconds)
        start = GangStart(report.generation, report.is_generation_over)
        facts |= start_facts(held, start, report.rendezvous)
        phase = phase_in_gang(held, report.phase, self._gang_candidates(held))
        after = self._store.instances.record_node(
            held.id, phase, now_seconds, facts, job, report.transfer
        )
        if after.job == job:
            self._store_report(after, report, now_seconds)
        if report.time is not None:
            held_seconds = after.handed_over_seconds or after.launched_seconds
            self._store.time_uses.count(after.id, job, report.time, held_seconds)
        self._store_instance_report(after, report, now_seconds)
        for text in refused:
            self._add_event_once(after, "report refused", f"{after.id}: {text}", now_seconds)
        is_news = (
            after.phase is not held.phase
            or after.facts != held.facts
            or report.failure is not None
        )
        has_observations = any(training.observations for training in report.reports)
        return TakenReport(held, after, report, is_news or has_observations)

    def reply(self, taken: TakenReport) -> NodeReply:
        """Return the reply to a report, once it has been committed."""
        after = taken.after
        if after.job == (taken.report.job or taken.before.job):
            self._report_missing_session(after, self._clock.now())
            self._worlds.measure(taken.before, after)
        if taken.is_news:
            self._wake()
        return self._present_reply(after.id)

    async def wait_for_change(
        self, instance: str, reply: NodeReply, wait_seconds: float
    ) -> NodeReply:
        """Return the reply to an instance once it has another job or has to drain.

        After `wait_seconds` it is the given reply, which has neither.
        """

        def look() -> tuple[NodeReply, ...]:
            latest = self._present_reply(instance)
            return (latest,) if latest.job != reply.job or latest.wanted is Wanted.DRAIN else ()

        replies = await self._notifier.wait_for(instance, look, wait_seconds)
        return replies[0] if replies else reply

    def call(self, instance: str) -> None:
        """Send the delayed reply to an instance's agent now, since its job has changed."""
        self._notifier.notify_threadsafe(instance)

    def end_polls(self) -> None:
        """Send all delayed replies now, because the server ends; call this in its event loop."""
        self._notifier.close()

    def _present_reply(self, instance: str) -> NodeReply:
        held = self._store.instances.get(instance)
        job = self._store.jobs.get(held.job)
        reply = self._instructions(held, job)
        return self._worlds.reply(held, job, reply) if job.spec.restart is not None else reply

    def _store_report(self, held: HeldInstance, report: NodeReport, now_seconds: float) -> None:
        origin = ReportOrigin(held.id, report.attempt, report.started_seconds or 0.0)
        for training_report in report.reports:
            counted = in_instances(training_report, held)
            self._store.reports.add(held.job, counted, origin, now_seconds)
            if training_report.checkpoint.error is not None:
                self._add_event_once(
                    held, "checkpoint failed", training_report.checkpoint.error, now_seconds
                )
            if training_report.skipped_steps:
                has_earlier_runs = self._store.jobs.get(held.job).spec.resumes is not None
                text = _skipped_text(training_report.skipped_steps, has_earlier_runs)
                self._add_event_once(held, "skipped", text, now_seconds)
            for text in training_report.bounds.memory_messages:
                self._add_event_once(held, "out of memory", text, now_seconds)
        if report.failure is not None:
            self._fail(held, report.failure, now_seconds)

    def _store_instance_report(
        self, held: HeldInstance, report: NodeReport, now_seconds: float
    ) -> None:
        """Store the part of a report that concerns the instance, whatever its job."""
        if report.reclaim_seconds is not None and held.reclaim_seconds is None:
            self._record_reclaim(held, report.reclaim_seconds, now_seconds)
        for note in report.notes:
            self._add_event_once(held, "note", f"{held.id}: {note}", now_seconds)

    def _record_reclaim(
        self, held: HeldInstance, reclaim_seconds: float, now_seconds: float
    ) -> None:
        """Record the reclaim of an instance, unless the controller terminates it itself."""
        intents = self._store.intents.of_instance(held.id)
        if any(intent.kind is IntentKind.TERMINATE for intent in intents):
            return
        self._store.instances.take_back(held.id, reclaim_seconds, now_seconds)
        left_seconds = max(reclaim_seconds - now_seconds, 0)
        self._add_event(
            held, "reclaim", f"{held.id} is taken back in {left_seconds:.0f} s", now_seconds
        )

    def _fail(self, held: HeldInstance, failure: Failure, now_seconds: float) -> None:
        """Store a failed start of the job's script, and record it as an event once."""
        if self._store.reports.add_failure(held.job, failure, now_seconds):
            self._add_event(held, "failure", f"{held.id}: {failure.cause}", now_seconds)

    def _instructions(self, held: HeldInstance, job: JobRecord) -> NodeReply:
        # An instance that has done its part may stay for another trial until it has to drain.
        is_cut_short = job.phase in _ENDS_BADLY and not has_done_its_part(held, job)
        is_over = held.phase is InstancePhase.ENDED or is_cut_short
        models = self._store.measurements.models(job.id)
        kind = next(
            (offer.device_kind for offer in self._status.offers if offer.id == held.offer), None
        )
        model = models.get(kind) if kind is not None else None
        return NodeReply(
            wanted=Wanted.DRAIN if is_over or held.desired is Desired.ABSENT else Wanted.RUN,
            attempt=job.attempt,
            start_seconds=job.retry_seconds if awaits_retry(job, self._clock.now()) else None,
            devices_used=held.devices_used,
            drain_seconds=self._drain_seconds(job),
            throughput=model.point if model is not None and model.measured else None,
            checkpoint_interval_seconds=self._status.checkpoint_intervals.get(job.id),
            job=job.id,
            may_start=self._may_start(held),
            pauses=held.stands_by,
            place=place_of(held, self._gang_candidates(held)),
        )

    def _gang_candidates(self, held: HeldInstance) -> Sequence[HeldInstance]:
        """Return the job's instances that have not ended; none for an instance without a gang."""
        return () if held.seat is None else self._store.instances.of_job(held.job)

    def _may_start(self, held: HeldInstance) -> bool:
        if held.stands_by:
            return False
        if held.phase is InstancePhase.TRAINING:
            return True
        job_instances = self._store.instances.of_job(held.job)
        is_complete = any(instance.completed_seconds is not None for instance in job_instances)
        if is_complete or waits_for_network(held, job_instances):
            return False
        job = self._store.jobs.get(held.job)
        return has_opened_session(job, job_instances) or self._starts_first(held)

    def _starts_first(self, held: HeldInstance) -> bool:
        """Return whether an instance is the one that runs the script before a session is open."""
        with self._first_start:
            chosen = first_starter(self._store.instances.of_job(held.job))
            if chosen is None:
                chosen = self._store.instances.note(held.id, {Fact.FIRST_START: "1"})
            is_same_gang = held.seat is not None and (
                chosen.seat is not None and chosen.seat.number == held.seat.number
            )
            return chosen.id == held.id or is_same_gang

    def _report_missing_session(self, held: HeldInstance, now_seconds: float) -> None:
        if held.unopened_seconds is None or held.session_seconds is not None:
            return
        all_instances = self._store.instances.of_job(held.job, include_ended=True)
        job = self._store.jobs.get(held.job)
        if is_without_session(job, all_instances):
            self._add_event_once(held, "no session", sessionless_text(job), now_seconds)

    def _drain_seconds(self, job: JobRecord) -> float:
        return script_seconds(self._store, job, self._least_drain_seconds)

    def _offer(self, offer_id: str) -> Offer:
        for offer in self._status.offers:
            if offer.id == offer_id:
                return offer
        raise Unavailable(f"the controller has just started and does not know {offer_id} yet")

    def _add_event_once(
        self, held: HeldInstance, kind: str, text: str, now_seconds: float
    ) -> None:
        """Add an event unless the same event was added recently."""
        recent_events = self._store.events.latest(held.job, limit=_EVENTS_LOOKED_AT)
        if not any(event.kind == kind and event.text == text for event in recent_events):
            self._add_event(held, kind, text, now_seconds)

    def _add_event(self, held: HeldInstance, kind: str, text: str, now_seconds: float) -> None:
        self._store.events.add(Event(now_seconds, kind, text, held.job))


def _skipped_text(steps: int, has_earlier_runs: bool) -> str:
    """Return the message on skipped steps; the number is rounded down to a power of 2.

    A resumed run counts on from the checkpoint of its earlier runs.
    """
    count = 1 << (steps.bit_length() - 1)
    whose = "the steps of all its runs" if has_earlier_runs else "its steps"
    return (
        f"at least {count} of {whose} skipped: their loss or gradient was not finite "
        "(NaN or infinity)"
    )


def _activity_facts(held: HeldInstance, activity: Activity | None) -> dict[str, str]:
    """Return the new fact of an instance whose script makes no steps, or makes them again."""
    text = "" if activity is None else activity.text
    return {} if text == held.facts.get(Fact.ACTIVITY, "") else {Fact.ACTIVITY: text}
