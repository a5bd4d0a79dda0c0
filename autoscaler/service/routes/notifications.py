"""Routes for notifications."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query, Request

from autoscaler.domain.notice import Delivery
from autoscaler.notifications.outbox import Notifications
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.routes.bodies import JsonResponse, json_response
from autoscaler.service.routes.pages import (
    LARGEST_PAGE,
    CursorText,
    PageQuery,
    cursor_of,
    page_response,
)
from autoscaler.service.routes.permits import Permit
from autoscaler.wire.notification_messages import (
    DeliveryView,
    NotificationsView,
    TargetView,
    TestMessage,
)


def notifications_router(notifications: Notifications) -> APIRouter:
    """Return the routes for deliveries of notices, and for a test."""
    router = APIRouter(prefix="/v1/notifications")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ_NOTIFICATIONS))])
    def latest(
        request: Request,
        cursor: CursorText = None,
        limit: int = Query(default=50, ge=1, le=LARGEST_PAGE),
    ) -> JsonResponse[NotificationsView]:
        """List the latest deliveries of notices, and the targets."""
        place = PageQuery(limit, cursor).place("notifications", int)
        rows = notifications.latest(limit + 1, None if place is None else place[0])
        deliveries, is_last = rows[:limit], len(rows) <= limit
        following = None if is_last else cursor_of("notifications", deliveries[-1].number)
        view = NotificationsView(
            tuple(TargetView(target.name, target.kind) for target in notifications.targets),
            tuple(_view(delivery, notifications.deployment) for delivery in deliveries),
        )
        return page_response(NotificationsView, view, request, following)

    @router.post("/test")
    def test(
        requester: Requester = Depends(Permit(AccessAction.TEST_NOTIFICATIONS)),
    ) -> JsonResponse[TestMessage]:
        """Send a test notice to all targets."""
        notice = notifications.test(requester.identity.person)
        targets = tuple(target.name for target in notifications.targets)
        requester.record(", ".join(targets))
        return json_response(
            TestMessage, TestMessage(notice.id(notifications.deployment), targets)
        )

    return router


def _view(delivery: Delivery, deployment: str) -> DeliveryView:
    notice = delivery.notice
    return DeliveryView(
        id=notice.id(deployment),
        kind=notice.key.kind,
        subject=notice.key.subject,
        job=notice.job,
        at_seconds=notice.at_seconds,
        text=notice.text,
        target=delivery.target,
        state=delivery.state,
        attempts=delivery.attempts,
        next_seconds=delivery.next_seconds,
        error=delivery.error,
        done_seconds=delivery.done_seconds,
    )
