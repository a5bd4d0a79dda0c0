"""Pages of studies: their list, and one study with its trials, rungs, cost and instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.domain.access import Identity
from autoscaler.domain.terms import TrialRecord
from autoscaler.service.access.gate import AccessGate, Requester
from autoscaler.service.access.permissions import AccessAction, is_permitted
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.study_chart import best_chart, stays_chart
from autoscaler.service.pages.table_order import Column, OrderedTable, TableOrder
from autoscaler.service.routes.pages import PageQuery, cursor_of
from autoscaler.service.routes.permits import Permit
from autoscaler.service.studies.studies import Studies
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.wire.study_messages import StudySummary

_ROWS: Final = 25
_POINTS: Final = 200
_TRIALS: Final = 200


@dataclass(frozen=True, slots=True)
class TrialLine:
    """Row of a trial: its state in a word, and its last report or final value.

    `position` is the row's place in the order in which trials began. `number` is that in the
    study; None: not known. Trials that ran in one job after another have shares of its cost `usd`
    by their `seconds`. Where these are unknown, `job_usd` is the cost of their job.
    """

    job: str
    state: str
    progress: float | None
    decided_at: float | None
    value: float | None
    trained: str | None
    number: int | None = None
    seconds: float | None = None
    usd: float | None = None
    job_usd: float | None = None
    position: int = 0


STUDIES: Final[OrderedTable[StudySummary]] = OrderedTable(
    "sort",
    (
        Column("study", lambda study: study.name),
        Column("best", lambda study: study.best),
        Column("running", lambda study: study.running, begins_high=True),
        Column("waiting", lambda study: study.waiting, begins_high=True),
        Column("ended", lambda study: study.ended, begins_high=True),
        Column("price", lambda study: study.usd_per_hour, begins_high=True),
        Column("spent", lambda study: study.spent_usd, begins_high=True),
        Column("budget", lambda study: study.budget_usd, begins_high=True),
        Column("deadline", lambda study: study.deadline_seconds),
    ),
    usual="study",
)
TRIALS: Final[OrderedTable[TrialLine]] = OrderedTable(
    "sort",
    (
        Column("trial", lambda line: line.position, begins_high=True),
        Column("state", lambda line: line.state),
        Column("progress", lambda line: line.progress, begins_high=True),
        Column("decided", lambda line: line.decided_at, begins_high=True),
        Column("value", lambda line: line.value),
        Column("time", lambda line: line.seconds, begins_high=True),
        Column(
            "cost",
            lambda line: line.job_usd if line.usd is None else line.usd,
            begins_high=True,
        ),
        Column("trained", lambda line: line.trained),
    ),
    usual="-trial",
)


def studies_pages_router(
    pages: Pages, studies: Studies, clock: Clock, optuna_dashboard: str | None
) -> APIRouter:
    """Return the pages of studies, with links to an optuna-dashboard if there is one."""
    router = APIRouter(include_in_schema=False)

    @router.get("/studies")
    def every_study(
        request: Request,
        cursor: str = "",
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> Response:
        order = STUDIES.order(request)
        summaries, following = _listed(studies, order, PageQuery(_ROWS, cursor or None))
        return pages.page(
            request,
            "studies.html",
            requester,
            summaries=summaries,
            order=order,
            is_later=bool(cursor),
            following=following,
        )

    @router.get("/studies/{study}")
    def one_study(
        request: Request, study: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        view, summary = studies.view(study), studies.summary(study)
        history = studies.history(study, _POINTS)
        gate: AccessGate = request.app.state.access
        may = _permitted(gate, requester.identity, study)
        stays = studies.stays(study) if may[AccessAction.READ_STAYS] else ()
        held = {stay.job for stay in stays if stay.to_seconds is None}
        lines = [
            line
            for record in view.trials
            for line in trial_lines(record, held, history.job_usd.get(record.stands.job))
        ]
        order = TRIALS.order(request)
        ordered = order.sorted(
            replace(line, position=position) for position, line in enumerate(lines)
        )
        return pages.page(
            request,
            "study.html",
            requester,
            study=view,
            optuna_dashboard=optuna_dashboard,
            summary=summary,
            history=history,
            may={action.value: is_allowed for action, is_allowed in may.items()},
            stays=stays,
            stays_drawing=stays_chart(stays, clock.now()),
            best_drawing=best_chart(history),
            trials=ordered[:_TRIALS],
            order=order,
            line_count=len(lines),
        )

    return router


def _listed(
    studies: Studies, order: TableOrder[StudySummary], page: PageQuery
) -> tuple[list[StudySummary], str | None]:
    """Return a page of the list of studies, and the cursor of the next one; None after the last.

    Only the usual order, by name, reads no more studies than it shows.

    Raises:
        SpecError: the cursor is not one of this list.
    """
    names = studies.names()
    if order.is_usual:
        listed, following = page.part(names, "studies", str)
        return [studies.summary(name) for name in listed], following
    ordered = order.sorted(studies.summary(name) for name in names)
    list_name = f"studies {order.choice}"
    place = page.place(list_name, str)
    known = [study.name for study in ordered]
    start = known.index(place[0]) + 1 if place is not None and place[0] in known else 0
    shown = ordered[start : start + _ROWS]
    more = start + len(shown) < len(ordered)
    return shown, cursor_of(list_name, shown[-1].name) if more else None


def _permitted(gate: AccessGate, identity: Identity, study: str) -> dict[AccessAction, bool]:
    """Return whether an identity may take each action of the page on a study."""
    owners = gate.store.owners.of(OwnedKind.STUDY, study)
    actions = (AccessAction.READ_STAYS, AccessAction.CHANGE_STUDY, AccessAction.STOP_STUDY)
    return {action: is_permitted(identity, action, owners) for action in actions}


def trial_lines(
    record: TrialRecord, held: set[str], job_usd: float | None
) -> tuple[TrialLine, ...]:
    """Return the rows of all trials of a job, which cost `job_usd`; None: not known.

    Short trials have only results; the first trial of a job has reports, too.
    """
    stands, results = record.stands, [result for _, result in record.results]
    first = _trial_row(record, held)
    if not results:
        return (replace(first, usd=job_usd),)
    shares, other = record.cost_shares, replace(first, progress=None, decided_at=None, value=None)
    lines: list[TrialLine] = []
    for result in results:
        share = shares[result.number]
        usd = None if job_usd is None or share is None else job_usd * share
        base = other if lines else first
        line = replace(
            base,
            state=result.ending,
            value=base.value if result.value is None else result.value,
            number=result.number,
            seconds=result.seconds,
            usd=usd,
            job_usd=job_usd if usd is None else None,
        )
        lines.append(line)
    if not stands.has_ended:
        lines.append(other)
    return tuple(lines)


def _trial_row(record: TrialRecord, held: set[str]) -> TrialLine:
    stands = record.stands
    state = "pending"
    if stands.has_ended:
        state = "finished"
    elif stands.waits:
        state = "waits at a rung"
    elif stands.job in held:
        state = "running"
    return TrialLine(
        job=stands.job,
        state=state,
        progress=stands.progress,
        decided_at=stands.decided_at,
        value=stands.reports[-1][1] if stands.reports else None,
        trained=None if record.trained is None else str(record.trained),
    )
