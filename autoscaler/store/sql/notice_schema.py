"""Tables of notices to people and of their deliveries."""

from __future__ import annotations

from pydantic import TypeAdapter
from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from autoscaler.domain.notice import DeliveryState, NoticeKind, UserNotice
from autoscaler.store.sql.columns import Document, word
from autoscaler.store.sql.schema import Table


class NoticeRow(Table):
    """A notice. `ended_seconds` is when its condition was over; None while it lasts."""

    __tablename__ = "notices"
    __table_args__ = (Index(None, "kind", "subject", "episode", unique=True),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[NoticeKind] = mapped_column(word(NoticeKind))
    subject: Mapped[str]
    episode: Mapped[int]
    ended_seconds: Mapped[float | None] = mapped_column(index=True)
    notice: Mapped[UserNotice] = mapped_column(Document(TypeAdapter(UserNotice)))


class DeliveryRow(Table):
    """A delivery of a notice to a target."""

    __tablename__ = "deliveries"
    __table_args__ = (Index(None, "state", "target", "next_seconds"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    notice: Mapped[int] = mapped_column(ForeignKey("notices.id"), index=True)
    target: Mapped[str]
    state: Mapped[DeliveryState] = mapped_column(word(DeliveryState))
    attempts: Mapped[int]
    next_seconds: Mapped[float]
    error: Mapped[str | None]
    done_seconds: Mapped[float | None]
