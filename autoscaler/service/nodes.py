"""What node agents tell, taken in, and what they are to do."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.finishing import COMPLETE_FACT, DONE_FACT
from autoscaler.controller.leaving import script_seconds
from autoscaler.domain.errors import NotAllowed, SpecError, Unavailable
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import Failure, ReportOrigin
from autoscaler.service.assignments import Assignments
from autoscaler.service.authentication import Authentication
from autoscaler.store.events import Event
from autoscaler.store.store import Store
from autoscaler.wire.messages import (
    Assignment,
    JoinReply,
    JoinRequest,
    NodeReply,
    NodeReport,
    Wanted,
)

_ENDS_BADLY = (JobPhase.FAILED, JobPhase.STOPPED)


class Nodes:
    """The controller's side of every agent."""

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
    ) -> None:
        self._store = store
        self._authentication = authentication
        self._assignments = assignments
        self._status = status
        self._wake = wake
        self._clock = clock
        self._heartbeat_seconds = heartbeat_seconds
        self._lease_seconds = lease_seconds
        self._least_drain_seconds = least_drain_seconds

    def join(self, request: JoinRequest) -> JoinReply:
        """Let an instance in, and tell it its work.

        The token is used up last: who is not told its work may come again.

        Raises:
            NotAllowed: its token does not do.
            SpecError: a secret of the job can't be found, which is a failure of its set-up.
        """
        candidate = self._authentication.candidate(request.token, request.instance)
        assignment = self._first_assignment(candidate)
        token = self._authentication.join(request.token, request.instance)
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

    def _first_assignment(self, held: HeldInstance) -> Assignment:
        """The work of an instance. Its agent can't tell the owner yet why there is none."""
        try:
            return self.assignment(held)
        except SpecError as error:
            attempt = self._store.jobs.get(held.job).attempt
            cause = str(error)
            failure = Failure(held.id, attempt, 1, cause, cause, steps=0, during_setup=True)
            self._fail(held, failure, self._clock.now())
            self._wake()
            raise

    def assignment(self, held: HeldInstance) -> Assignment:
        """The work of an instance again."""
        job = self._store.jobs.get(held.job)
        return self._assignments.assignment(job, held, self._offer(held.offer))

    def heartbeat(self, held: HeldInstance, report: NodeReport) -> NodeReply:
        """Take in what an instance tells, and answer what it is to do.

        Raises:
            NotAllowed: it speaks for another instance.
        """
        if report.instance != held.id:
            raise NotAllowed(f"the token of {held.id} does not do for {report.instance}")
        now_seconds = self._clock.now()
        facts: dict[str, str] = {}
        if report.is_done:
            facts[DONE_FACT] = str(report.attempt)
        if report.is_complete and COMPLETE_FACT not in held.facts:
            facts[COMPLETE_FACT] = str(now_seconds)
        after = self._store.instances.record_node(held.id, report.phase, now_seconds, facts)
        self._take_in(after, report, now_seconds)
        is_news = (
            after.phase is not held.phase
            or after.facts != held.facts
            or report.failure is not None
        )
        if is_news or any(each.observations for each in report.reports):
            self._wake()
        return self._reply(self._store.instances.get(held.id), self._store.jobs.get(held.job))

    def _take_in(self, held: HeldInstance, report: NodeReport, now_seconds: float) -> None:
        origin = ReportOrigin(held.id, report.attempt, report.started_seconds or 0.0)
        for each in report.reports:
            self._store.reports.add(held.job, each, origin, now_seconds)
            if each.checkpoint.error is not None:
                self._once(held, "checkpoint failed", each.checkpoint.error, now_seconds)
        if report.failure is not None:
            self._fail(held, report.failure, now_seconds)
        if report.reclaim_seconds is not None and held.reclaim_seconds is None:
            self._store.instances.set_reclaim(held.id, report.reclaim_seconds)
            self._store.instances.release(held.id, now_seconds)
            left_seconds = max(report.reclaim_seconds - now_seconds, 0)
            self._tell(
                held, "reclaim", f"{held.id} is taken back in {left_seconds:.0f} s", now_seconds
            )
        for note in report.notes:
            self._once(held, "note", f"{held.id}: {note}", now_seconds)

    def _fail(self, held: HeldInstance, failure: Failure, now_seconds: float) -> None:
        """Keep a failed start of the job's script, and tell of it, once."""
        if self._store.reports.add_failure(held.job, failure, now_seconds):
            self._tell(held, "failure", f"{held.id}: {failure.cause}", now_seconds)

    def _reply(self, held: HeldInstance, job: JobRecord) -> NodeReply:
        is_over = held.phase is InstancePhase.ENDED or job.phase in _ENDS_BADLY
        models = self._store.measurements.models(job.id)
        kind = next((o.device_kind for o in self._status.offers if o.id == held.offer), None)
        model = models.get(kind) if kind is not None else None
        return NodeReply(
            wanted=Wanted.DRAIN if is_over or held.desired is Desired.ABSENT else Wanted.RUN,
            attempt=job.attempt,
            start_seconds=job.retry_seconds,
            devices_used=held.devices_used,
            drain_seconds=self._drain_seconds(job),
            throughput=model.point if model is not None and model.measured else None,
            checkpoint_interval_seconds=self._status.checkpoint_intervals.get(job.id),
        )

    def _drain_seconds(self, job: JobRecord) -> float:
        return script_seconds(self._store, job, self._least_drain_seconds)

    def _offer(self, offer_id: str) -> Offer:
        for offer in self._status.offers:
            if offer.id == offer_id:
                return offer
        raise Unavailable(f"the controller has just started and does not know {offer_id} yet")

    def _once(self, held: HeldInstance, kind: str, text: str, now_seconds: float) -> None:
        """Tell it unless it was told last."""
        said = self._store.events.latest(held.job, limit=10)
        if not any(event.kind == kind and event.text == text for event in said):
            self._tell(held, kind, text, now_seconds)

    def _tell(self, held: HeldInstance, kind: str, text: str, now_seconds: float) -> None:
        self._store.events.add(Event(now_seconds, kind, text, held.job))
