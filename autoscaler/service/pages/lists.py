"""Pages of offers and costs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.background import Background
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.capacity import Refusal
from autoscaler.store.store import Store
from autoscaler.wire.messages import CostView, OfferView

_DAYS: Final = 30
_ROWS: Final = 50
_FRESH_SECONDS: Final = 5.0
_LONGEST_WAIT_SECONDS: Final = 0.5
_REFRESH_SECONDS: Final = 3


@dataclass(frozen=True, slots=True)
class OfferRow:
    """Offer with what is known of it beside its price.

    `usually_there` is the estimated share of time with capacity, and `lost` the number of observed
    reclaims that the estimate of its lifetimes is from; None: unknown.
    """

    view: OfferView
    held: int
    refusal: Refusal | None
    usually_there: float | None
    lost: float | None


def offers_router(
    pages: Pages, store: Store, views: Views, status: ControllerStatus, clock: Clock
) -> APIRouter:
    """Return the page of offers."""
    router = APIRouter(include_in_schema=False)

    @router.get("/offers")
    def offers(
        request: Request,
        q: str = "",
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> Response:
        view, refusals = views.offers(clock.now()), store.capacity.refusals()
        held: dict[str, int] = {}
        for instance in store.instances.alive():
            held[instance.offer] = held.get(instance.offer, 0) + 1
        rows = [
            _offer_row(offer, held, refusals, status)
            for offer in view.offers
            if q.lower() in offer.offer.id.lower()
        ]
        rows.sort(key=lambda row: (row.view.offer.device_kind, row.view.offer.usd_per_hour))
        return pages.page(
            request,
            "offers.html",
            requester,
            rows=rows,
            refused=view.refused,
            silent=sorted(status.silent),
            q=q,
            total=len(view.offers),
        )

    return router


def _offer_row(
    view: OfferView,
    held: Mapping[str, int],
    refusals: Mapping[str, Refusal],
    status: ControllerStatus,
) -> OfferRow:
    believed = {offer.id: offer for offer in status.believed.offers}.get(view.offer.id)
    lives = status.believed.lives.get(view.offer.id)
    refusal = refusals.get(view.offer.id) if view.is_unavailable else None
    shown = (
        view
        if believed is None
        else OfferView(
            believed,
            view.price_source,
            view.price_age_seconds,
            view.is_stale,
            view.is_unavailable,
        )
    )
    return OfferRow(
        shown,
        held.get(view.offer.id, 0),
        refusal,
        None if lives is None else lives.usually_there,
        None if lives is None else sum(lives.reclaim.ends),
    )


@dataclass(frozen=True, slots=True)
class CostBar:
    """Amount of a name, and its share of the greatest one for a bar."""

    name: str
    usd: Decimal
    share: float


def costs_router(pages: Pages, views: Views, budgets: SharedBudgets, clock: Clock) -> APIRouter:
    """Return the page of costs."""
    router = APIRouter(include_in_schema=False)
    workers = ThreadPoolExecutor(1, thread_name_prefix="castor-costs")
    known = Background[str, CostView](
        lambda key: views.costs(clock.now()), _FRESH_SECONDS, workers, clock
    )

    @router.get("/costs")
    def costs(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        now_seconds = clock.now()
        view = known.get(views.controller(), _LONGEST_WAIT_SECONDS)
        if view is None:
            return _being_added_up(pages, request, requester)
        today = datetime.fromtimestamp(now_seconds, UTC).date()
        days = [today - timedelta(days=back) for back in reversed(range(_DAYS))]
        by_day = {day.isoformat(): view.by_day.get(day.isoformat(), Decimal(0)) for day in days}
        return pages.page(
            request,
            "costs.html",
            requester,
            view=view,
            days=list(by_day.items()),
            greatest_day=max(by_day.values(), default=Decimal(0)),
            persons=bars(view.by_person),
            teams=bars(view.by_team),
            budgets=budgets.views(),
            jobs=bars(view.by_job),
            offers=bars(view.by_offer),
            months=sorted(view.by_month.items(), reverse=True),
            rows=_ROWS,
        )

    return router


def _being_added_up(pages: Pages, request: Request, requester: Requester) -> Response:
    """Return a page that loads the costs again until they are added up."""
    response = pages.page(
        request,
        "message.html",
        requester,
        title="The costs are being added up",
        text="With many instances this takes up to a minute. The page loads again by itself.",
        way_back="/",
    )
    response.headers["Refresh"] = str(_REFRESH_SECONDS)
    return response


def bars(amounts: Mapping[str, Decimal]) -> list[CostBar]:
    """Return amounts with bars, the greatest first."""
    greatest = max(amounts.values(), default=Decimal(0))
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return [
        CostBar(name, usd, float(usd / greatest) if greatest > 0 else 0.0) for name, usd in ordered
    ]
