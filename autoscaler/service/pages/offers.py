"""Page of offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.table_order import Column, OrderedTable
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.capacity import Refusal
from autoscaler.store.store import Store
from autoscaler.wire.messages import OfferView


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


OFFERS: Final[OrderedTable[OfferRow]] = OrderedTable(
    "sort",
    (
        Column("offer", lambda row: (row.view.offer.instance_type, row.view.offer.zone)),
        Column("devices", lambda row: row.view.offer.device_kind),
        Column("purchase", lambda row: row.view.offer.purchase),
        Column("price", lambda row: row.view.offer.usd_per_hour),
        Column("per-device", lambda row: row.view.offer.usd_per_hour / row.view.offer.devices),
        Column("held", lambda row: row.held, begins_high=True),
        Column(
            "state",
            lambda row: (row.view.is_unavailable, row.view.is_stale),
            begins_high=True,
        ),
        Column("boot", lambda row: row.view.offer.boot_seconds),
        Column("queue", lambda row: row.view.offer.fill_seconds, begins_high=True),
        Column("reclaims", lambda row: row.view.offer.reclaims_per_hour, begins_high=True),
        Column("known", lambda row: row.view.price_age_seconds, begins_high=True),
    ),
    usual="devices",
)


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
        order = OFFERS.order(request)
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
            rows=order.sorted(rows),
            order=order,
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
