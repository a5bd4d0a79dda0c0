"""Page of one job: its curve, its course, its money and time, its decisions, failures and log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.job_names import meant_job
from autoscaler.domain.report import CONSEQUENCE
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction, is_permitted
from autoscaler.service.files.logs import Logs
from autoscaler.service.jobs.histories import Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.views import Views, decision_view
from autoscaler.service.pages.answers import job_answers
from autoscaler.service.pages.curve_chart import NARROW, WIDE, curve_chart
from autoscaler.service.pages.formats import significant
from autoscaler.service.pages.log_lines import LogLineView, last_lines
from autoscaler.service.pages.prospects import productive_share
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.series_chart import (
    NARROW_SERIES,
    WIDE_SERIES,
    decision_anchor,
    series_chart,
)
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store
from autoscaler.wire.messages import JobView
from autoscaler.wire.outlook_messages import Hypothesis, OutlookView, WhatIfView

_DECISIONS: Final = 50
# Rows of the table of sizes, which keep the page below 300 kB.
_SIZES: Final = 400
_POINTS: Final = 300
_LINES: Final = 12
_LOG_LINES: Final = 400
_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class JobPageSources:
    """Components that the page of a job reads."""

    store: Store
    views: Views
    outlooks: Outlooks
    histories: Histories
    logs: Logs
    results: Results
    receipts: Receipts
    clock: Clock


@dataclass(frozen=True, slots=True)
class Slider:
    """Range of a what-if slider on a logarithmic scale, with its present value."""

    low: float
    high: float
    value: float


class AssumedTerm(StrEnum):
    """Term of a hypothetical objective. A what-if assumes one of them; the value is the field."""

    VALUE = "value"
    HOURS = "hours"


@dataclass(frozen=True, slots=True)
class WhatIfQuery:
    """Texts of a what-if in an address: the term, $ an hour, and hours from now to the deadline.

    Without a term, the value counts if it is given, and else the hours.
    """

    assume: str = ""
    value: str = ""
    hours: str = ""

    @property
    def term(self) -> AssumedTerm | None:
        """Term that is assumed; None: none."""
        if self.assume in tuple(AssumedTerm):
            return AssumedTerm(self.assume)
        if self.value:
            return AssumedTerm.VALUE
        return AssumedTerm.HOURS if self.hours else None


@dataclass(frozen=True, slots=True)
class Assumption:
    """Sliders and fields of a hypothetical objective, with present outlook, answer and error.

    `term` is the one whose slider is in force; `value` and `hours` are the texts of the fields.
    """

    term: AssumedTerm
    value_slider: Slider
    hours_slider: Slider
    value: str
    hours: str
    present: OutlookView
    view: WhatIfView | None
    error: str | None


def what_if_query(
    assume: str = Query(default="", max_length=30),
    value: str = Query(default="", max_length=30),
    hours: str = Query(default="", max_length=30),
) -> WhatIfQuery:
    """Return the what-if of a request's address."""
    return WhatIfQuery(assume, value, hours)


def job_page_router(pages: Pages, sources: JobPageSources) -> APIRouter:
    """Return the page of a job, the part that its sliders redraw, and its log."""
    router = APIRouter(include_in_schema=False)

    def meant(name: str, requester: Requester) -> JobRecord:
        return meant_job(sources.store.jobs.named(name), requester.identity)

    @router.get("/jobs/{name}")
    def job_page(
        request: Request,
        name: str,
        asked: WhatIfQuery = Depends(what_if_query),
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> Response:
        job = meant(name, requester)
        values = _values_of(sources, job, requester)
        assumption = assumed(sources, job, values["outlook"], asked)
        return pages.page(request, "job.html", requester, assumption=assumption, **values)

    @router.get("/jobs/{name}/what-if")
    def what_if(
        request: Request,
        name: str,
        asked: WhatIfQuery = Depends(what_if_query),
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> Response:
        job = meant(name, requester)
        assumption = assumed(sources, job, sources.outlooks.outlook(job), asked)
        return pages.page(request, "job_what_if.html", requester, assumption=assumption)

    @router.get("/jobs/{name}/log")
    def log(
        request: Request,
        instance: str = Query(default="", max_length=200),
        requester: Requester = Depends(Permit(AccessAction.READ_LOGS)),
    ) -> Response:
        job = requester.job
        lines = last_lines(sources.logs, job.id, _LOG_LINES, instance)
        view = sources.views.job(job, sources.clock.now())
        held = sources.store.instances.of_job(job.id, include_ended=True)
        instances = [one_instance.id for one_instance in held]
        return pages.page(
            request,
            "job_log.html",
            requester,
            job=view,
            lines=lines,
            instance=instance,
            instances=instances,
        )

    return router


def _values_of(sources: JobPageSources, job: JobRecord, requester: Requester) -> dict[str, Any]:
    """Return the values of the template of a job's page."""
    store, now_seconds = sources.store, sources.clock.now()
    view = sources.views.job(job, now_seconds, with_events=True)
    curve, history = sources.outlooks.curve(job), sources.histories.of(job, 0.0, _POINTS)
    owners, sizes = (job.spec.owner,), [point for offer in curve.offers for point in offer.points]
    may = {
        action: is_permitted(requester.identity, action, owners)
        for action in (
            AccessAction.READ_LOGS,
            AccessAction.FETCH_FILES,
            AccessAction.CHANGE_JOB,
            AccessAction.STOP_JOB,
            AccessAction.RESUME_JOB,
        )
    }
    entries = store.journal.decisions(job.id, _DECISIONS)
    outlook, receipt = (
        sources.outlooks.outlook(job),
        sources.receipts.with_earlier_runs(job, now_seconds),
    )

    def if_an_hour_were_worth(usd: float) -> OutlookView:
        assumed = Hypothesis(value_of_time_usd_per_hour=usd)
        return sources.outlooks.what_if(job, assumed, outlook).assumed

    return {
        "job": view,
        "answers": job_answers(curve, outlook, if_an_hour_were_worth),
        "command": job.spec.command,
        "program": job.spec.program_name,
        "may": {action.value: is_allowed for action, is_allowed in may.items()},
        "curve": curve,
        "sizes": sizes[:_SIZES],
        "more_sizes": max(len(sizes) - _SIZES, 0),
        "wide_curve": curve_chart(curve, WIDE),
        "narrow_curve": curve_chart(curve, NARROW),
        "wide_series": series_chart(history, WIDE_SERIES),
        "narrow_series": series_chart(history, NARROW_SERIES),
        "history": history,
        "outlook": outlook,
        "money": money_bar(view, outlook),
        "time": time_bar(view, outlook, now_seconds),
        "receipt": receipt,
        "receipt_share": productive_share((receipt,)),
        "decisions": [decision_view(entry) for entry in entries],
        "anchor": decision_anchor,
        "failures": store.reports.recent_failures(0.0, job.id)[::-1],
        "consequences": [event for event in view.events if event.kind == CONSEQUENCE][::-1],
        "lines": _log_lines(sources, job) if may[AccessAction.READ_LOGS] else (),
        "outputs": _outputs(sources, job) if may[AccessAction.FETCH_FILES] else None,
    }


def _log_lines(sources: JobPageSources, job: JobRecord) -> Sequence[LogLineView]:
    try:
        return last_lines(sources.logs, job.id, _LINES)
    except CastorError:  # the storage does not answer; the page has all else
        return ()


def _outputs(sources: JobPageSources, job: JobRecord) -> Any:
    """Return the files of a job; None if its storage does not answer."""
    try:
        return sources.results.outputs(job)
    except CastorError:
        return None


@dataclass(frozen=True, slots=True)
class BandBar:
    """Bar of what is over, the predicted band, and a bound, in percent of its axis.

    None: not known, or no bound.
    """

    done: float
    low: float | None
    high: float | None
    median: float | None
    bound: float | None
    is_over: bool


def money_bar(view: JobView, outlook: OutlookView) -> BandBar:
    """Return the bar of the money spent, the predicted total and the budget."""
    bound = None if outlook.most_usd is None else float(outlook.most_usd)
    return _bar(0.0, float(view.spent_usd), outlook.total_usd, bound)


def time_bar(view: JobView, outlook: OutlookView, now_seconds: float) -> BandBar:
    """Return the bar of the time since submission, the predicted finish and the deadline."""
    until_seconds = view.ended_seconds or now_seconds
    return _bar(
        view.submitted_seconds, until_seconds, outlook.finish_seconds, outlook.deadline_seconds
    )


def _bar(first: float, done: float, predicted: Any, bound: float | None) -> BandBar:
    band = None if predicted is None else predicted.band
    # A far bound, such as a default budget, must not flatten all else.
    reach = max(done, band[1] if band else done) - first
    is_shown = bound is not None and bound - first <= 20 * max(reach, 1e-9)
    last = 1.04 * max(reach, (bound or first) - first if is_shown else 0.0) or 1.0

    def at(value: float) -> float:
        return round(min(max((value - first) / last, 0.0), 1.0) * 100, 2)

    return BandBar(
        done=at(done),
        low=at(band[0]) if band else None,
        high=at(band[1]) if band else None,
        median=at(predicted.median) if band else None,
        bound=at(bound) if bound is not None and is_shown else None,
        is_over=bool(bound is not None and band and predicted.ninety_percent > bound),
    )


def assumed(
    sources: JobPageSources, job: JobRecord, outlook: OutlookView, asked: WhatIfQuery
) -> Assumption | None:
    """Return the what-if of a page; None if the job's end can't be predicted."""
    if outlook.finish_seconds is None:
        return None
    value_slider, hours_slider = _sliders(outlook)
    usual = AssumedTerm.VALUE if outlook.deadline_seconds is None else AssumedTerm.HOURS
    view, error = None, None
    try:
        hypothesis = _hypothesis(asked, outlook.at_seconds)
        if hypothesis is not None:
            view = sources.outlooks.what_if(job, hypothesis, outlook)
    except CastorError as refusal:
        error = str(refusal)
    return Assumption(
        term=asked.term or usual,
        value_slider=value_slider,
        hours_slider=hours_slider,
        value=asked.value or _field_text(value_slider.value),
        hours=asked.hours or _field_text(hours_slider.value),
        present=outlook,
        view=view,
        error=error,
    )


def _sliders(outlook: OutlookView) -> tuple[Slider, Slider]:
    """Return the sliders of the value of an hour and of the hours to the deadline.

    Both stand at their present value. The middle of the first is the price of what the job holds
    if an hour counts nothing now.
    """
    now_seconds, finish = outlook.at_seconds, outlook.finish_seconds
    value = outlook.value_of_time_usd_per_hour or 0.0
    middle = value or max((size.usd_per_hour for size in outlook.sizes), default=0.0) or 1.0
    deadline_seconds = outlook.deadline_seconds
    if deadline_seconds is None or deadline_seconds <= now_seconds:
        left_seconds = 0.0 if finish is None else finish.median - now_seconds
        deadline_seconds = now_seconds + max(left_seconds, 60.0)
    hours = (deadline_seconds - now_seconds) / _SECONDS_PER_HOUR
    return Slider(middle / 100, middle * 100, value), Slider(hours / 8, hours * 8, hours)


def _field_text(value: float) -> str:
    return significant(value, 2).replace(",", "")


def _hypothesis(asked: WhatIfQuery, now_seconds: float) -> Hypothesis | None:
    """Return the assumptions of an address; None without any.

    Raises:
        SpecError: a text is no number.
    """
    match asked.term:
        case AssumedTerm.VALUE if asked.value:
            return Hypothesis(value_of_time_usd_per_hour=_number(asked.value, "value of time"))
        case AssumedTerm.HOURS if asked.hours:
            seconds = _number(asked.hours, "hours to the deadline") * _SECONDS_PER_HOUR
            return Hypothesis(deadline_seconds=now_seconds + seconds)
    return None


def _number(text: str, field: str) -> float:
    try:
        return float(Decimal(text))
    except (ArithmeticError, ValueError):
        raise SpecError("is no number: write it like 4 or 0.5", field) from None
