"""Tables of the database. Times are seconds since the Unix epoch.

Only `autoscaler.store` uses these rows; its callers get values of the domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from autoscaler.domain.access import OWNER
from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.domain.job import JobPhase, JobSpec, StopReason
from autoscaler.domain.plan import Decision
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import Failure, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.domain.spending import EntryKind
from autoscaler.domain.transfer import TransferAccount
from autoscaler.store.records.step_times import Run
from autoscaler.store.sql.columns import Document, Money, word

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")

_NOT_ENDED = text(f"phase <> '{InstancePhase.ENDED}'")


class Table(DeclarativeBase):
    """Base of all tables, with the same names of constraints on every database."""

    def to(self, kind: type[Value]) -> Value:
        """Return a dataclass of type `kind`, filled from the columns with its field names."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})

    def take(self, value: DataclassInstance, but: str | None = None) -> None:
        """Set the columns named like the fields of `value`, except the field `but`.

        SQLAlchemy writes only columns whose value changes.
        """
        for field in fields(value):
            if field.name != but:
                setattr(self, field.name, getattr(value, field.name))

    @classmethod
    def read(cls, session: Session, kind: type[Value], rows: Select[Any]) -> Iterator[Value]:
        """Yield dataclasses of type `kind` from the columns of rows with its field names.

        For many rows this takes a third of the time of `to`, as no row becomes an object.
        """
        columns = [getattr(cls, field.name) for field in fields(kind)]
        return starmap(kind, session.execute(rows.with_only_columns(*columns)))

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
        # SQLite assigns row numbers only to INTEGER columns, which have 64 bits there.
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
        StopReason: word(StopReason),
    }


class JobRow(Table):
    """A job. `report_attempt` and `report_started_seconds` name the start that sent the report.

    `observations_revision` counts the changes of the job's observations. `person`, `team`, `study`
    and `checkpoint_directory` repeat those of the spec, to find jobs by them. The three columns
    before the last are a `SampleMark`.
    """

    __tablename__ = "jobs"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str] = mapped_column(index=True)
    spec: Mapped[JobSpec] = mapped_column(Document(TypeAdapter(JobSpec)))
    phase: Mapped[JobPhase] = mapped_column(index=True)
    submitted_seconds: Mapped[float]
    started_seconds: Mapped[float | None]
    ended_seconds: Mapped[float | None]
    attempt: Mapped[int]
    retry_seconds: Mapped[float | None]
    cause: Mapped[str | None]
    stop_reason: Mapped[StopReason | None]
    last_lines: Mapped[tuple[str, ...]] = mapped_column(Document(TypeAdapter(tuple[str, ...])))
    lighthouse: Mapped[str | None]
    report: Mapped[TrainingReport | None] = mapped_column(Document(TypeAdapter(TrainingReport)))
    reported_seconds: Mapped[float | None]
    report_attempt: Mapped[int | None]
    report_started_seconds: Mapped[float | None]
    observations_revision: Mapped[int] = mapped_column(server_default="0")
    person: Mapped[str] = mapped_column(index=True, server_default=OWNER)
    team: Mapped[str | None] = mapped_column(index=True)
    study: Mapped[str | None] = mapped_column(index=True)
    sampled_seconds: Mapped[float | None]
    sample_spacing_seconds: Mapped[float] = mapped_column(server_default="1.0")
    sample_count: Mapped[int] = mapped_column(server_default="0")
    checkpoint_directory: Mapped[str | None] = mapped_column(index=True)


class FailureRow(Table):
    """A failed start of a job's script."""

    __tablename__ = "failures"
    __table_args__ = (UniqueConstraint("job", "instance", "attempt"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    instance: Mapped[str]
    attempt: Mapped[int]
    at_seconds: Mapped[float]
    failure: Mapped[Failure] = mapped_column(Document(TypeAdapter(Failure)))


class InstanceRow(Table):
    """An instance. A slot of a job has at most one instance that has not ended.

    `report_started_seconds` and `report_step` describe the last report of the instance.
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
    """A call to a cloud, written before it is made. An instance has at most one of each kind."""

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
    """An offer that was refused `in_a_row` times, and the end of its back-off."""

    __tablename__ = "refusals"

    offer: Mapped[str] = mapped_column(primary_key=True)
    error_kind: Mapped[str]
    in_a_row: Mapped[int]
    until_seconds: Mapped[float]
    reason: Mapped[str] = mapped_column(server_default="")


class LedgerRow(Table):
    """A line of the ledger. The database refuses to change or delete lines."""

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
    """Decaying means of the step times of one configuration; see `StepTimes`."""

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
    """Running mean of one named duration; `offer` is empty if the duration has no offer."""

    __tablename__ = "durations"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    offer: Mapped[str] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(primary_key=True)
    mean_seconds: Mapped[float]
    count: Mapped[int]


class NoiseRow(Table):
    """Noise scale at one point of a job's progress."""

    __tablename__ = "noise"

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    progress_examples: Mapped[float]
    noise: Mapped[NoiseScale] = mapped_column(Document(TypeAdapter(NoiseScale)))


class SampleRow(Table):
    """Sample of a job's reports."""

    __tablename__ = "samples"
    __table_args__ = (Index(None, "job", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    at_seconds: Mapped[float]
    progress_examples: Mapped[float]
    batch: Mapped[int]
    learning_rate: Mapped[float | None]
    goodput: Mapped[float | None]
    noise_examples: Mapped[float | None]
    loss: Mapped[float | None]


class ModelsRow(Table):
    """Fitted throughput models of a job, by kind of device."""

    __tablename__ = "models"

    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    models: Mapped[Mapping[str, ThroughputModel]] = mapped_column(
        Document(TypeAdapter(dict[str, ThroughputModel]))
    )


class ProgramRow(Table):
    """Measurements of a program, for later jobs that run it."""

    __tablename__ = "programs"

    program: Mapped[str] = mapped_column(primary_key=True)
    memory: Mapped[ProgramMemory] = mapped_column(Document(TypeAdapter(ProgramMemory)))


class PlanRow(Table):
    """A plan of one tick. `document` holds the plan and its snapshot without the shared pieces."""

    __tablename__ = "plans"

    id: Mapped[int] = mapped_column(primary_key=True)
    tick: Mapped[int]
    at_seconds: Mapped[float] = mapped_column(index=True)
    document: Mapped[bytes]


class PieceRow(Table):
    """A part that several snapshots share, stored under the SHA-256 of its content."""

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
    """An event of a job, or of the fleet if `job` is None."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "job", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    at_seconds: Mapped[float] = mapped_column(index=True)
    job: Mapped[str | None]
    kind: Mapped[str]
    text: Mapped[str]


class LeadershipRow(Table):
    """The lease of the controller that leads this store, in the one row of the table.

    `epoch` counts the leaders. The lease ends at `expires_seconds` by the clock of the database;
    it has no end in SQLite, where a file lock ends with its process.
    """

    __tablename__ = "leadership"

    id: Mapped[int] = mapped_column(primary_key=True)
    epoch: Mapped[int]
    holder: Mapped[str]
    address: Mapped[str]
    expires_seconds: Mapped[float]


class KeptAnswerRow(Table):
    """The answer to a request with an idempotency key."""

    __tablename__ = "kept_answers"

    key_hash: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[str]
    status: Mapped[int]
    body: Mapped[str | None]
    at_seconds: Mapped[float] = mapped_column(index=True)


class SettingRow(Table):
    """A setting of this store."""

    __tablename__ = "settings"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
