"""Consequences of scripts' failures: retries, ends of jobs, and machines left out.

Every consequence is an event of the job, with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from autoscaler.controller.jobs.failed_offers import FAILURE_WINDOW_SECONDS, left_out_after
from autoscaler.controller.offers.false_starts import give_up
from autoscaler.controller.offers.market import Market
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.report import CONSEQUENCE, Failure, FailureCategory
from autoscaler.failures.consequences import CONSEQUENCES, main_category
from autoscaler.failures.counts import FailedStart, counts_text, is_suspect, jobs_alike
from autoscaler.failures.retry import RetryDecision, next_attempt
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

QUARANTINE = "quarantine"

_OTHER_JOBS = 3
_QUARANTINE_SECONDS = 3600.0
_QUARANTINE_KIND = "Quarantine"

_log = logging.getLogger(__name__)


class JobFailures:
    """Consequences of the failures of jobs' scripts."""

    def __init__(self, store: Store, market: Market) -> None:
        self._store = store
        self._market = market

    def settle(
        self, job: JobRecord, all_instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Retry or end a job whose present attempt has failed; do nothing if it has not.

        `all_instances` are all that the job ever had.
        """
        history = _without_reclaims(self._store.reports.failures(job.id), all_instances)
        failed = [failure for failure in history if failure.attempt == job.attempt]
        if not failed:
            return
        recent = self._recent_starts(now_seconds)
        decision = next_attempt(history, job.spec.retries)
        if decision.retry:
            decision = _unless_others_failed_alike(decision, job, failed, recent)
        self._tell(job, failed, recent, now_seconds)
        self._leave_machines(job, failed, recent, now_seconds)
        if decision.retry:
            retry_seconds = now_seconds + decision.delay_seconds
            self._store.jobs.start_attempt(job.id, job.attempt + 1, retry_seconds)
            self._record_event(now_seconds, "retry", decision.reason, job.id)
        else:
            cause = f"{decision.cause} ({decision.outcome})"
            self._store.jobs.set_phase(job.id, JobPhase.FAILED, now_seconds, cause)
            self._record_event(now_seconds, "failed", cause, job.id)

    def _recent_starts(self, now_seconds: float) -> list[FailedStart]:
        """Return the failed starts of all jobs in the last day."""
        records = self._store.reports.recent_failures(now_seconds - FAILURE_WINDOW_SECONDS)
        jobs = {record.job for record in records}
        specs = {job: self._store.jobs.get(job).spec for job in jobs}
        offers = {
            held.id: held.offer
            for job in jobs
            for held in self._store.instances.of_job(job, include_ended=True)
        }
        return [
            FailedStart(
                record.job,
                specs[record.job].person,
                specs[record.job].study or specs[record.job].program_name,
                offers.get(record.failure.instance),
                record.failure,
            )
            for record in records
        ]

    def _tell(
        self,
        job: JobRecord,
        failed: Sequence[Failure],
        recent: Sequence[FailedStart],
        now_seconds: float,
    ) -> None:
        """Record the category of a failure, its rule, and the counts of the last day."""
        category = main_category(tuple(failure.category for failure in failed))
        failure = next(item for item in failed if item.category is category)
        start = next((start for start in recent if start.failure == failure), None)
        counts = "" if start is None else f"; in 24 h: {counts_text(start, recent)}"
        rule = CONSEQUENCES[category]
        text = f"{category}, retried {rule.retry}: {rule.words}{counts}"
        self._record_event(now_seconds, CONSEQUENCE, text, job.id)

    def _leave_machines(
        self,
        job: JobRecord,
        failed: Sequence[Failure],
        recent: Sequence[FailedStart],
        now_seconds: float,
    ) -> None:
        """End the instances that the failures speak against, and leave out their offers."""
        kept = [
            held
            for held in self._store.instances.of_job(job.id)
            if held.desired is Desired.PRESENT and held.phase is not InstancePhase.ENDED
        ]
        by_id = {held.id: held for held in kept}
        for failure in failed:
            if CONSEQUENCES[failure.category].ends_machine and failure.instance in by_id:
                held = by_id.pop(failure.instance)
                cause = f"{failure.category}, no job gets this machine again: {failure.cause}"
                give_up(self._store, held, cause, now_seconds)
                self._quarantine(held.offer, recent, now_seconds)
            self._leave_offers(job, failure, list(by_id.values()), now_seconds)

    def _leave_offers(
        self,
        job: JobRecord,
        failure: Failure,
        kept: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """End the job's instances of offers that it leaves out, if it may get another one."""
        left_out = left_out_after(self._store, failure, self._market.offers)
        refused = self._store.capacity.unavailable(now_seconds)
        others = [
            offer
            for offer in self._market.offers
            if job.spec.instances.permits(offer)
            and offer.id not in left_out
            and offer.id not in refused
        ]
        leaving = [held for held in kept if held.offer in left_out]
        if not others or not leaving:
            return
        for held in leaving:
            if held.id == failure.instance:
                self._store.instances.request_termination(held.id, now_seconds)
            else:
                self._store.instances.release(held.id, now_seconds)
        names = ", ".join(sorted({held.offer for held in leaving}))
        text = f"{names} left out after {failure.category}: {CONSEQUENCES[failure.category].words}"
        self._record_event(now_seconds, CONSEQUENCE, text, job.id)

    def _quarantine(self, offer: str, recent: Sequence[FailedStart], now_seconds: float) -> None:
        """Leave an offer out for all jobs for an hour, if several programs failed so there."""
        if not is_suspect(offer, recent):
            return
        text = f"{offer}: machines failed under several programs; not ordered for an hour"
        until_seconds = now_seconds + _QUARANTINE_SECONDS
        self._store.capacity.refused(offer, _QUARANTINE_KIND, now_seconds, until_seconds, text)
        self._record_event(now_seconds, QUARANTINE, text, None)

    def _record_event(self, now_seconds: float, kind: str, text: str, job: str | None) -> None:
        _log.info("%s %s: %s", job or "fleet", kind, text, extra={"job": job})
        self._store.events.add(Event(now_seconds, kind, text, job))


def _without_reclaims(
    failures: Sequence[Failure], all_instances: Sequence[HeldInstance]
) -> list[Failure]:
    """Return failures, those on instances that the cloud takes back as ended from outside."""
    reclaimed = {held.id for held in all_instances if held.reclaim_seconds is not None}
    return [
        replace(failure, category=FailureCategory.ENDED_FROM_OUTSIDE)
        if failure.instance in reclaimed
        else failure
        for failure in failures
    ]


def _unless_others_failed_alike(
    decision: RetryDecision,
    job: JobRecord,
    failed: Sequence[Failure],
    recent: Sequence[FailedStart],
) -> RetryDecision:
    """Return the decision, or a refusal if the owner's other jobs failed in the same way.

    Failures repeat within an owner far more than within a job (Jeon et al., section 4.2).
    """
    count = max(jobs_alike(job.id, job.spec.person, failure, recent) for failure in failed)
    if count < _OTHER_JOBS:
        return decision
    outcome = f"not retried, {count} other jobs of the owner failed in the same way in 24 h"
    return RetryDecision(False, 0.0, outcome, decision.cause)
