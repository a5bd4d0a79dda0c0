"""The tables. Times are seconds since the Unix epoch; no row of this module leaves the room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.plan import Decision
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import Failure, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.domain.spending import EntryKind
from autoscaler.domain.transfer import TransferAccount
from autoscaler.store.columns import Document, Money, word
from autoscaler.store.step_times import Run

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")

_NOT_ENDED = text(f"phase <> '{InstancePhase.ENDED}'")


class Table(DeclarativeBase):
    """The base of all tables; constraints are named alike on every database."""

    def to(self, kind: type[Value]) -> Value:
        """The value of the domain whose fields are columns of this row, by the same names."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})

    def take(self, value: DataclassInstance, but: str | None = None) -> None:
        """Take over the fields of such a value, except `but`; what is equal is not written."""
        for field in fields(value):
            if field.name != but:
                setattr(self, field.name, getattr(value, field.name))

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        str: Text(),
        # Only INTEGER numbers the rows of SQLite, where it has 64 bits anyway.
        int: BigInteger().with_variant(Integer(), "sqlite"),
        float: Double(),
        bytes: LargeBinary(),
        Decimal: Money(),
        JobPhase: word(JobPhase),
        Desired: word(Desired),
        InstancePhase: word(InstancePhase),
        IntentKind: word(IntentKind),
        IntentState: word(IntentState),
        EntryKind: word(EntryKind),
    }


class JobRow(Table):
    """A job. `report_attempt` and `report_started_seconds` tell which start told the report."""

    __tablename__ = "jobs"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str] = mapped_column(index=True)
    spec: Mapped[JobSpec] = mapped_column(Document(TypeAdapter(JobSpec)))
    phase: Mapped[JobPhase]
    submitted_seconds: Mapped[float]
    started_seconds: Mapped[float | None]
    ended_seconds: Mapped[float | None]
    attempt: Mapped[int]
    retry_seconds: Mapped[float | None]
    cause: Mapped[str | None]
    last_lines: Mapped[tuple[str, ...]] = mapped_column(Document(TypeAdapter(tuple[str, ...])))
    lighthouse: Mapped[str | None]
    report: Mapped[TrainingReport | None] = mapped_column(Document(TypeAdapter(TrainingReport)))
    reported_seconds: Mapped[float | None]
    report_attempt: Mapped[int | None]
    report_started_seconds: Mapped[float | None]


class FailureRow(Table):
    """One start of a job's script that failed."""

    __tablename__ = "failures"
    __table_args__ = (UniqueConstraint("job", "instance", "attempt"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    instance: Mapped[str]
    attempt: Mapped[int]
    at_seconds: Mapped[float]
    failure: Mapped[Failure] = mapped_column(Document(TypeAdapter(Failure)))


class InstanceRow(Table):
    """An instance. At most one that has not ended is in a slot of a job.

    `report_started_seconds` and `report_step` are of the last report that it told.
    """

    __tablename__ = "instances"
    __table_args__ = (
        UniqueConstraint("job", "slot", "generation"),
        Index(
            "ix_instances_held",
            "job",
            "slot",
            unique=True,
            sqlite_where=_NOT_ENDED,
            postgresql_where=_NOT_ENDED,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    slot: Mapped[int]
    generation: Mapped[int]
    offer: Mapped[str]
    devices_used: Mapped[int]
    usd_per_hour: Mapped[Decimal]
    minimum_billed_seconds: Mapped[int]
    desired: Mapped[Desired]
    phase: Mapped[InstancePhase]
    requested_seconds: Mapped[float]
    cloud_id: Mapped[str | None]
    launched_seconds: Mapped[float | None]
    joined_seconds: Mapped[float | None]
    training_seconds: Mapped[float | None]
    draining_seconds: Mapped[float | None]
    ended_seconds: Mapped[float | None]
    seen_seconds: Mapped[float | None]
    reclaim_seconds: Mapped[float | None]
    facts: Mapped[Mapping[str, str]] = mapped_column(Document(TypeAdapter(dict[str, str])))
    report_started_seconds: Mapped[float | None]
    report_step: Mapped[int | None]
    extras_usd_per_hour: Mapped[Decimal]
    transfer: Mapped[TransferAccount] = mapped_column(Document(TypeAdapter(TransferAccount)))


class IntentRow(Table):
    """A call to a cloud, written before it is made: at most one of a kind for an instance."""

    __tablename__ = "intents"
    __table_args__ = (UniqueConstraint("instance", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[IntentKind]
    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    token: Mapped[str]
    state: Mapped[IntentState] = mapped_column(index=True)
    attempts: Mapped[int]
    not_before_seconds: Mapped[float]
    error: Mapped[str | None]
    sent_seconds: Mapped[float | None]


class RefusalRow(Table):
    """An offer that was refused `in_a_row` times, and until when it is not asked for again."""

    __tablename__ = "refusals"

    offer: Mapped[str] = mapped_column(primary_key=True)
    error_kind: Mapped[str]
    in_a_row: Mapped[int]
    until_seconds: Mapped[float]
    reason: Mapped[str] = mapped_column(server_default="")


class LedgerRow(Table):
    """A line of the ledger. The database itself refuses to change or delete one."""

    __tablename__ = "ledger"
    __table_args__ = (UniqueConstraint("instance", "kind", "at_seconds"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[EntryKind]
    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    offer: Mapped[str]
    usd_per_hour: Mapped[Decimal]
    at_seconds: Mapped[float]
    minimum_billed_seconds: Mapped[int]
    extras_usd_per_hour: Mapped[Decimal]
    usd: Mapped[Decimal]
    sent_bytes: Mapped[int]
    fetched_bytes: Mapped[int]


class ObservationRow(Table):
    """Faded means of the step times of one configuration, as `StepTimes` has them."""

    __tablename__ = "observations"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    device_kind: Mapped[str] = mapped_column(primary_key=True)
    instances: Mapped[int] = mapped_column(primary_key=True)
    devices: Mapped[int] = mapped_column(primary_key=True)
    device_batch: Mapped[int] = mapped_column(primary_key=True)
    accumulation: Mapped[int] = mapped_column(primary_key=True)
    step_seconds: Mapped[float]
    sync_seconds: Mapped[float]
    steps: Mapped[float]
    updated_seconds: Mapped[float]
    era: Mapped[int]
    settled_seconds: Mapped[float]
    run: Mapped[Run | None] = mapped_column(Document(TypeAdapter(Run)))


class DurationRow(Table):
    """The running mean of one named duration; `offer` is empty where it belongs to none."""

    __tablename__ = "durations"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    offer: Mapped[str] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(primary_key=True)
    mean_seconds: Mapped[float]
    count: Mapped[int]


class NoiseRow(Table):
    """The noise scale at one point of a job's progress."""

    __tablename__ = "noise"

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    progress_examples: Mapped[float]
    noise: Mapped[NoiseScale] = mapped_column(Document(TypeAdapter(NoiseScale)))


class ModelsRow(Table):
    """The fitted throughput models of a job, by kind of device."""

    __tablename__ = "models"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    models: Mapped[Mapping[str, ThroughputModel]] = mapped_column(
        Document(TypeAdapter(dict[str, ThroughputModel]))
    )


class ProgramRow(Table):
    """What was learnt of a program."""

    __tablename__ = "programs"

    program: Mapped[str] = mapped_column(primary_key=True)
    memory: Mapped[ProgramMemory] = mapped_column(Document(TypeAdapter(ProgramMemory)))


class PlanRow(Table):
    """A plan of one tick: `document` holds what it was made of, less the parts in `pieces`."""

    __tablename__ = "plans"

    id: Mapped[int] = mapped_column(primary_key=True)
    tick: Mapped[int]
    at_seconds: Mapped[float] = mapped_column(index=True)
    document: Mapped[bytes]


class PieceRow(Table):
    """A part that many snapshots have in common, under the SHA-256 of its content."""

    __tablename__ = "pieces"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[bytes]
    used_seconds: Mapped[float] = mapped_column(index=True)


class DecisionRow(Table):
    """One decision of a plan."""

    __tablename__ = "decisions"
    __table_args__ = (Index(None, "job", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[int] = mapped_column(ForeignKey("plans.id"), index=True)
    job: Mapped[str]
    decision: Mapped[Decision] = mapped_column(Document(TypeAdapter(Decision)))


class EventRow(Table):
    """Something that happened to a job, or to the fleet where `job` is None."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "job", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at_seconds: Mapped[float] = mapped_column(index=True)
    job: Mapped[str | None]
    kind: Mapped[str]
    text: Mapped[str]


class JoinTokenRow(Table):
    """A token with which one instance may join once; only its hash is kept."""

    __tablename__ = "join_tokens"

    hash: Mapped[str] = mapped_column(primary_key=True)
    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    expires_seconds: Mapped[float]
    burned_seconds: Mapped[float | None]


class PersonRow(Table):
    """A person who may use the service; only the hash of the token is kept."""

    __tablename__ = "people"

    name: Mapped[str] = mapped_column(primary_key=True)
    token_hash: Mapped[str] = mapped_column(unique=True)


class SettingRow(Table):
    """A value that is chosen once for this store."""

    __tablename__ = "settings"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
