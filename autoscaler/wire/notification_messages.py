"""Messages of the HTTP API about notifications."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.notice import DeliveryState, NoticeKind


@dataclass(frozen=True, slots=True)
class TargetView:
    """Target of notices: its name and kind in the file of `castor serve --notify`."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """Delivery of a notice to a target, as `Delivery`; `id` is that of the message."""

    id: str
    kind: NoticeKind
    subject: str
    job: str | None
    at_seconds: float
    text: str
    target: str
    state: DeliveryState
    attempts: int
    next_seconds: float
    error: str | None
    done_seconds: float | None


@dataclass(frozen=True, slots=True)
class NotificationsView:
    """Targets of the controller, and the latest deliveries, the newest first."""

    targets: tuple[TargetView, ...]
    deliveries: tuple[DeliveryView, ...]


@dataclass(frozen=True, slots=True)
class TestMessage:
    """Test message that was stored for all targets; `id` is that of the message."""

    id: str
    targets: tuple[str, ...]
