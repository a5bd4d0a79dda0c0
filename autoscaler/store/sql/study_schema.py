"""Tables of studies: terms, driver leases, trial records, and calls of trials to drivers."""

from __future__ import annotations

from decimal import Decimal

from pydantic import TypeAdapter
from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from autoscaler.domain.terms import StudyTerms, TrialRecord
from autoscaler.store.sql.columns import Document
from autoscaler.store.sql.schema import Table

_NOT_ANSWERED = text("answer IS NULL")


class IncarnationRow(Table):
    """A start of a trial's script that calls the driver of the study."""

    __tablename__ = "incarnations"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    instance: Mapped[str]
    started_seconds: Mapped[float]


class TrialCallRow(Table):
    """A call of an incarnation to the driver, and its answer; None if it has none yet."""

    __tablename__ = "trial_calls"
    __table_args__ = (
        UniqueConstraint("job", "incarnation", "number"),
        Index(
            "ix_trial_calls_waiting",
            "study",
            "id",
            sqlite_where=_NOT_ANSWERED,
            postgresql_where=_NOT_ANSWERED,
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study: Mapped[str]
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    incarnation: Mapped[int]
    number: Mapped[int]
    text: Mapped[str]
    answer: Mapped[str | None]


class LeaseRow(Table):
    """Lease of the driver of a study."""

    __tablename__ = "leases"

    study: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until_seconds: Mapped[float]


class StudyRow(Table):
    """Terms of a study, and the budget that a person set; None if none is set."""

    __tablename__ = "studies"

    name: Mapped[str] = mapped_column(primary_key=True)
    terms: Mapped[StudyTerms] = mapped_column(Document(TypeAdapter(StudyTerms)))
    budget_usd: Mapped[Decimal | None]


class TrialRow(Table):
    """Record of the progress and speeds of a trial."""

    __tablename__ = "trials"

    id: Mapped[int] = mapped_column(primary_key=True)
    study: Mapped[str] = mapped_column(index=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    record: Mapped[TrialRecord] = mapped_column(Document(TypeAdapter(TrialRecord)))
