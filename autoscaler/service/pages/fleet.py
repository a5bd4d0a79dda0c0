"""First page: whether anything is wrong, what is paid, and why each job has what it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.background import Background
from autoscaler.service.pages.fleet_notices import (
    MOST_NAMED,
    EndedJobs,
    FleetFacts,
    deadline_notices,
    headline,
    notices,
    was_late,
)
from autoscaler.service.pages.fleet_summary import (
    BarredStep,
    FleetCount,
    barred_step,
    block_groups,
    count_fleet,
    limit_lines,
)
from autoscaler.service.pages.job_rows import ShownJob
from autoscaler.service.pages.prospects import Prospect, productive_share, prospect_of
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.time_axis import FinishAxis, axis_of
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.jobs import JobFilter, JobOrder, JobPlace, Jobs
from autoscaler.store.store import Store

ROWS: Final = 25
"""Most jobs on the page: those that need a person, then the dearest."""

_ENDED_SECONDS: Final = 86_400.0
_PAGE: Final = 1_000
# Time by which the end of a job may be older than the moment from which the store has it.
_DELAY_SECONDS: Final = 900.0
_COUNT_FRESH_SECONDS: Final = 1.0
_COST_FRESH_SECONDS: Final = 20.0
_PROSPECT_FRESH_SECONDS: Final = 30.0
_FIRST_WAIT_SECONDS: Final = 0.25
_MANY_INSTANCES: Final = 1_000
_WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class FleetSources:
    """Components that the first page reads from."""

    store: Store
    status: ControllerStatus
    views: Views
    outlooks: Outlooks
    receipts: Receipts
    budgets: SharedBudgets
    clock: Clock


class LateEnds:
    """Jobs that finished after their deadlines within the last day. Each end is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._late: dict[str, JobRecord] = {}
        self._read_seconds = float("-inf")

    def of(self, now_seconds: float) -> tuple[JobRecord, ...]:
        """Return the jobs, the latest submitted first."""
        day_seconds = now_seconds - _ENDED_SECONDS
        since_seconds = max(day_seconds, self._read_seconds - _DELAY_SECONDS)
        wanted = JobFilter((JobPhase.FINISHED,), ended_since_seconds=since_seconds)
        ended_late = [job for job in every_job(self._store.jobs, wanted) if was_late(job)]
        known = [job for job in self._late.values() if (job.ended_seconds or 0.0) >= day_seconds]
        self._late = {job.id: job for job in (*known, *ended_late)}
        self._read_seconds = now_seconds
        return tuple(sorted(self._late.values(), key=lambda job: -job.number))


def every_job(jobs: Jobs, wanted: JobFilter) -> Iterator[JobRecord]:
    """Yield all jobs of a list, the latest submitted first, in reads of bounded size."""
    place: JobPlace | None = None
    while True:
        page = jobs.page(wanted, JobOrder.NEWEST, _PAGE, place)
        yield from page
        if len(page) < _PAGE:
            return
        place = JobPlace(page[-1].number, page[-1].spec.name)


class FleetPage:
    """Content of the first page. Slow values are computed beside the requests."""

    def __init__(self, sources: FleetSources) -> None:
        self._sources = sources
        workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="castor-page")
        clock = sources.clock
        self._counts = Background[str, FleetCount](
            lambda key: self._count(), _COUNT_FRESH_SECONDS, workers, clock
        )
        self._today = Background[str, Decimal](
            lambda key: self._spent_today(), _COST_FRESH_SECONDS, workers, clock
        )
        self._late_ends = LateEnds(sources.store)
        self._ended = Background[str, EndedJobs](
            lambda key: self._ended_lately(), _COST_FRESH_SECONDS, workers, clock
        )
        self._prospects = Background[tuple[str, str], Prospect](
            self._prospect, _PROSPECT_FRESH_SECONDS, workers, clock
        )

    def values(self) -> dict[str, Any]:
        """Return the values of the template."""
        sources = self._sources
        store, status, now_seconds = sources.store, sources.status, sources.clock.now()
        controller = sources.views.controller()
        count = self._counts.get(controller, _FIRST_WAIT_SECONDS) or FleetCount()
        alive, frozen = store.jobs.alive(), store.settings.frozen()
        facts = FleetFacts(
            status,
            count,
            now_seconds,
            alive,
            self._ended.get(controller, _FIRST_WAIT_SECONDS) or EndedJobs(),
            budgets=sources.budgets.views(),
            frozen_by=None if frozen is None else frozen.person,
        )
        rows = self._rows(self._shown(facts), now_seconds)
        holding = [job for job in alive if job.id in count.rates or job.phase is JobPhase.STOPPING]
        running = sum(job.phase is not JobPhase.PENDING for job in holding)
        starting = len(holding) - running
        waiting = len(alive) - running - starting
        barred = _barred(rows)
        known = notices(facts, _finishes(rows), barred)
        return {
            "headline": headline(known, count, running, waiting, starting),
            "notices": known,
            "count": count,
            "alive": len(alive),
            "rows": rows,
            "productive": productive_share(
                [row.prospect.receipt for row in rows if row.prospect and row.prospect.receipt]
            ),
            "budgets": facts.budgets,
            "axis": _axis(rows, now_seconds),
            "steps": sorted(rows, key=_worth, reverse=True),
            "limits": limit_lines(status, count, barred),
            "is_frozen": frozen is not None,
            "ticked_seconds": status.ticked_seconds,
            # The last value, since its computation slows the others where instances are many.
            "spent_today": self._today.get(controller, _wait_seconds(count)),
        }

    def _count(self) -> FleetCount:
        status = self._sources.status
        providers = {offer.id: offer.provider for offer in status.offers}
        return count_fleet(self._sources.store.instances.alive(), providers)

    def _spent_today(self) -> Decimal:
        now_seconds = self._sources.clock.now()
        today = datetime.fromtimestamp(now_seconds, UTC).date()
        costs = self._sources.views.daily_costs(today, today, now_seconds)
        return sum((cost.usd for cost in costs), Decimal(0))

    def _prospect(self, key: tuple[str, str]) -> Prospect:
        record = self._sources.store.jobs.get(key[1])
        outlooks = self._sources.outlooks
        samples = self._sources.store.reports.samples(record.id)
        prospect = prospect_of(outlooks.outlook(record), outlooks.curve(record), samples)
        receipt = self._sources.receipts.of(record, self._sources.clock.now())
        return replace(prospect, receipt=receipt)

    def _shown(self, facts: FleetFacts) -> list[JobRecord]:
        """Return the jobs of the page: those that need a person first, then the dearest."""
        status = facts.status
        late = {notice.subject for notice in deadline_notices(facts)}
        troubled = {*status.stalls, *status.job_troubles, *status.alarms, *late}

        def place(job: JobRecord) -> tuple[bool, Decimal, float]:
            rate = facts.count.rates.get(job.id, Decimal(0))
            return job.id not in troubled, -rate, job.submitted_seconds

        return sorted(facts.alive, key=place)[:ROWS]

    def _rows(self, jobs: Sequence[JobRecord], now_seconds: float) -> list[ShownJob]:
        sources, controller = self._sources, self._sources.views.controller()
        offers = {offer.id: offer for offer in sources.status.offers}
        for job in jobs:
            self._prospects.get(
                (controller, job.id)
            )  # so that workers compute while views are read
        views = sources.views.jobs(jobs, now_seconds)
        until_seconds = sources.clock.monotonic() + _FIRST_WAIT_SECONDS
        rows = []
        for view in views:
            left_seconds = max(until_seconds - sources.clock.monotonic(), 0.0)
            prospect = self._prospects.get((controller, view.id), left_seconds)
            groups = block_groups(sources.store.instances.of_job(view.id), offers)
            rows.append(ShownJob(view, groups, prospect))
        return rows

    def _ended_lately(self) -> EndedJobs:
        """Return the jobs that ended within the last day and need a look.

        Jobs that failed or used up their budget need none once they were submitted again or
        resumed.
        """
        jobs, now_seconds = self._sources.store.jobs, self._sources.clock.now()
        since_seconds = now_seconds - _ENDED_SECONDS
        failed = JobFilter((JobPhase.FAILED,), ended_since_seconds=since_seconds, is_latest=True)
        stopped = replace(failed, phases=(JobPhase.STOPPED,))
        ended = [
            *jobs.page(failed, JobOrder.NEWEST, MOST_NAMED),
            *self._late_ends.of(now_seconds),
            *every_job(jobs, stopped),
        ]
        return EndedJobs.of(ended, jobs.phase_counts(failed).get(JobPhase.FAILED, 0))


def fleet_router(pages: Pages, content: FleetPage) -> APIRouter:
    """Return the first page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def fleet(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        return pages.page(request, "fleet.html", requester, **content.values())

    return router


def _wait_seconds(count: FleetCount) -> float:
    """Return how long a page waits for today's costs, which grow with the instances."""
    return _FIRST_WAIT_SECONDS if count.states.total() < _MANY_INSTANCES else 0.0


def _finishes(rows: Sequence[ShownJob]) -> Mapping[str, tuple[float, float]]:
    """Return the predicted ends of jobs, in 90 % of cases, by job; stalled jobs have none."""
    return {
        row.view.id: finish.band
        for row in rows
        if row.prospect is not None
        and row.view.stall is None
        and (finish := row.prospect.outlook.finish_seconds) is not None
    }


def _worth(row: ShownJob) -> float:
    """Return what the next instance of a row is worth; the lowest value if that is unknown."""
    step = None if row.prospect is None else row.prospect.next
    return float("-inf") if step is None or step.worth is None else step.worth


def _barred(rows: Sequence[ShownJob]) -> tuple[BarredStep, ...]:
    """Return the instances that would pay for the jobs of some rows, and that a limit forbids."""
    steps = (barred_step(row.view.id, row.prospect) for row in rows)
    return tuple(step for step in steps if step is not None)


def _axis(rows: Sequence[ShownJob], now_seconds: float) -> FinishAxis:
    """Return the time axis that all rows share."""
    outlooks = [row.prospect.outlook for row in rows if row.prospect is not None]
    ends = [known.finish_seconds.band for known in outlooks if known.finish_seconds is not None]
    deadlines = [row.view.objective.deadline_seconds for row in rows]
    return axis_of(ends, [due for due in deadlines if due is not None], now_seconds)
