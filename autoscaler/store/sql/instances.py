"""Instances in a database, with their intents and lines of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.intent import Intent, IntentKind
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.store.records.hand_over import HandOver, handed_over
from autoscaler.store.records.holding import (
    Holding,
    InstanceOrder,
    ordered,
)
from autoscaler.store.records.places import Place, places_of
from autoscaler.store.records.transfers import Lined, is_sighting
from autoscaler.store.repositories.capacity import Refuse
from autoscaler.store.repositories.instances import Instances, unknown_instance
from autoscaler.store.sql.cache import LiveRecords, after_commit
from autoscaler.store.sql.capacity import keep_refusal
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import FactCache, Load, batches, grouped
from autoscaler.store.sql.jobs import job_phase, job_row
from autoscaler.store.sql.ledger import add_line
from autoscaler.store.sql.schema import InstanceRow, IntentRow, JobRow, LedgerRow

_OtherInstance = aliased(InstanceRow)
_OtherLine = aliased(LedgerRow)
_TRAINED_SECONDS = (
    select(func.max(_OtherInstance.training_seconds))
    .where(_OtherInstance.job == InstanceRow.job, _OtherInstance.offer == InstanceRow.offer)
    .scalar_subquery()
)
_NEVER_TRAINED = select(InstanceRow).where(
    or_(InstanceRow.phase == InstancePhase.ENDED, InstanceRow.desired == Desired.ABSENT),
    InstanceRow.launched_seconds.is_not(None),
    InstanceRow.training_seconds.is_(None),
    or_(
        _TRAINED_SECONDS.is_(None),
        func.coalesce(InstanceRow.draining_seconds, InstanceRow.ended_seconds) > _TRAINED_SECONDS,
    ),
)


_LAST_LINE = (
    select(func.max(_OtherLine.id))
    .where(_OtherLine.instance == InstanceRow.id, _OtherLine.kind != EntryKind.TRANSFER)
    .scalar_subquery()
)
# One row for each intent of an instance.
_HOLDINGS = (
    select(InstanceRow, JobRow.phase, IntentRow, LedgerRow)
    .join(JobRow, JobRow.id == InstanceRow.job)
    .join(IntentRow, IntentRow.instance == InstanceRow.id)
    .outerjoin(LedgerRow, LedgerRow.id == _LAST_LINE)
)
_ALIVE = select(InstanceRow).where(InstanceRow.phase != InstancePhase.ENDED)
_ENDED = select(InstanceRow).where(InstanceRow.phase == InstancePhase.ENDED)
_ENDED_KIND: Final = "ended instances"
_UNTRAINED_KIND: Final = "never trained"


class SqlInstances(Instances):
    """Repository on the table of instances; also writes the tables of intents and the ledger."""

    def __init__(self, database: Database, facts: FactCache) -> None:
        self._database = database
        self._facts = facts
        self._live: LiveRecords[HeldInstance] = LiveRecords(
            lambda held: held.phase is not InstancePhase.ENDED, _order, lambda held: held.job
        )
        self._unsaved: set[str] = set()  # ids of instances with sightings in memory only

    def get(self, instance: str) -> HeldInstance:
        held = self._live.get(instance) if self._is_live_loaded() else None
        if held is not None:
            return held
        with self._database.read() as session:
            return instance_row(session, instance).to(HeldInstance)

    def alive(self) -> tuple[HeldInstance, ...]:
        if self._is_live_loaded():
            return self._live.all()
        with self._database.read() as session:
            return _listed(session, _ALIVE)

    def of_job(self, job: str, include_ended: bool = False) -> tuple[HeldInstance, ...]:
        if not self._is_live_loaded():
            rows = select(InstanceRow) if include_ended else _ALIVE
            with self._database.read() as session:
                return _listed(session, rows.where(InstanceRow.job == job))
        alive = self._live.of_group(job)
        if not include_ended:
            return alive
        ended = self._facts.of_job(_ENDED_KIND, job, _by_job(_ENDED))
        # One that ended between the two reads is in both.
        by_id = {held.id: held for held in (*alive, *ended)}
        return tuple(sorted(by_id.values(), key=_order))

    def ended_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[HeldInstance, ...]]:
        load, ended = _by_job(_ENDED), dict[str, tuple[HeldInstance, ...]]()
        with self._database.read() as session:
            for some in batches(jobs):
                ended |= load(session, some)
        return {job: of_job for job, of_job in ended.items() if of_job}

    def never_trained(self, job: str) -> tuple[HeldInstance, ...]:
        return self._facts.of_job(_UNTRAINED_KIND, job, _by_job(_NEVER_TRAINED))

    def _is_live_loaded(self) -> bool:
        return self._database.live(self._live, lambda session: _listed(session, _ALIVE))

    def _present(self, row: InstanceRow) -> HeldInstance:
        """Return the instance of a row, with what later reports have changed in memory only."""
        stored = row.to(HeldInstance)
        if row.id not in self._unsaved or not self._live.is_loaded(self._database.epoch):
            return stored
        live = self._live.get(row.id)
        if live is None:
            return stored
        return replace(stored, seen_seconds=live.seen_seconds, transfer=live.transfer)

    def _keep(self, session: Session, before: HeldInstance | None, after: HeldInstance) -> None:
        """Keep a changed instance in memory, once the transaction is committed."""

        def keep() -> None:
            states = (after,) if before is None else (before, after)
            jobs = {held.job for held in states}
            if any(held.phase is InstancePhase.ENDED for held in states):
                self._database.cache.drop(*((_ENDED_KIND, job) for job in jobs))
            if any(map(_is_over, states)) or len({held.training_seconds for held in states}) > 1:
                self._database.cache.drop(*((_UNTRAINED_KIND, job) for job in jobs))
            # Last, so that a reader finds an instance that ends among the live or the ended ones.
            self._live.put(after)

        after_commit(session, keep)

    def keep_sightings(self) -> None:
        unsaved, self._unsaved = self._unsaved, set()
        if not unsaved:
            return
        with self._database.write() as session:
            sightings = [
                {"id": held.id, "seen_seconds": held.seen_seconds, "transfer": held.transfer}
                for name in unsaved
                if (held := self._live.get(name)) is not None
            ]
            if sightings:
                session.execute(update(InstanceRow), sightings)

    def _sighted(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance | None:
        if not self._is_live_loaded():
            return None

        def sighting(held: HeldInstance) -> HeldInstance | None:
            lined = change(held)
            return lined.held if is_sighting(held, lined) else None

        after = self._live.replace_if(instance, sighting)
        if after is not None:
            self._unsaved.add(instance)
        return after

    def _add(self, order: InstanceOrder) -> Holding | None:
        with self._database.write() as session:
            rows = _instances_of(session, order.job)
            alive = (row.to(HeldInstance) for row in rows if row.phase is not InstancePhase.ENDED)
            if not order.is_needed(held for held in alive if held.job == order.job):
                return None
            phase = job_phase(session, order.job)
            holding = ordered(order, phase, _places(rows, order.job))
            row = InstanceRow(minimum_billed_seconds=holding.minimum_billed_seconds)
            row.take(holding.held)
            session.add(row)
            session.flush()
            _keep_intent(session, None, holding.launch)
            self._keep(session, None, holding.held)
            return holding

    def _move(self, instance: str, order: HandOver) -> Holding:
        with self._database.write() as session:
            before = job_row(session, instance_row(session, instance).job).to(JobRecord)
            after = job_row(session, order.job).to(JobRecord)
            places = _places(_instances_of(session, order.job), order.job)
            return self._change_row(
                session,
                _holding_rows(session, instance),
                lambda holding: handed_over(holding, order, (before, after), places),
            )

    def _change_lined(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance:
        with self._database.write() as session:
            row = instance_row(session, instance)
            before = self._present(row)
            lined = change(before)
            row.take(lined.held)
            for line in lined.new_lines:
                add_line(self._database, session, line)
            self._keep(session, before, lined.held)
            return lined.held

    def _change_of_job(
        self, instance: str, change: Callable[[Holding, JobPhase], Holding]
    ) -> tuple[Holding, JobPhase]:
        with self._database.write() as session:
            rows = _holding_rows(session, instance)
            changed = self._change_row(session, rows, lambda holding: change(holding, rows.phase))
            return changed, rows.phase

    def _change_holding(
        self,
        instance: str,
        change: Callable[[Holding], Holding],
        refuse: Refuse | None = None,
    ) -> Holding:
        with self._database.write() as session:
            holding = self._change_row(session, _holding_rows(session, instance), change)
            if refuse is not None:
                keep_refusal(self._database, session, holding.held.offer, refuse)
            return holding

    def _change_row(
        self, session: Session, rows: _HoldingRows, change: Callable[[Holding], Holding]
    ) -> Holding:
        row, launch, termination = rows.instance, rows.launch, rows.termination
        before = self._present(row)
        holding = change(
            Holding(
                held=before,
                minimum_billed_seconds=row.minimum_billed_seconds,
                launch=launch.to(Intent),
                termination=None if termination is None else termination.to(Intent),
                last_line=None if rows.last_line is None else rows.last_line.to(LedgerEntry),
            )
        )
        row.take(holding.held)
        launch.take(holding.launch)
        if holding.termination is not None:
            _keep_intent(session, termination, holding.termination)
        for line in holding.new_lines:
            add_line(self._database, session, line)
        self._keep(session, before, holding.held)
        return holding


def instance_row(session: Session, instance: str) -> InstanceRow:
    """Return the row of an instance.

    Raises:
        UnknownInstance: no instance has this id.
    """
    row = session.get(InstanceRow, instance)
    if row is None:
        raise unknown_instance(instance)
    return row


def _order(held: HeldInstance) -> tuple[float, str]:
    return held.requested_seconds, held.id


def _listed(session: Session, rows: Select[InstanceRow]) -> tuple[HeldInstance, ...]:
    in_order = rows.order_by(InstanceRow.requested_seconds, InstanceRow.id)
    return tuple(InstanceRow.read(session, HeldInstance, in_order))


def _by_job(rows: Select[InstanceRow]) -> Load[tuple[HeldInstance, ...]]:
    """Return a read of those of `rows` that belong to each of some jobs."""

    def load(session: Session, jobs: Sequence[str]) -> Mapping[str, tuple[HeldInstance, ...]]:
        of_jobs = _listed(session, rows.where(InstanceRow.job.in_(jobs)))
        return grouped(jobs, ((held.job, held) for held in of_jobs))

    return load


def _is_over(held: HeldInstance) -> bool:
    """Return whether an instance has ended, or shall end."""
    return held.phase is InstancePhase.ENDED or held.desired is Desired.ABSENT


def _instances_of(session: Session, job: str) -> Sequence[InstanceRow]:
    """Return the rows of all instances that a job holds or has held."""
    if session.get_bind().dialect.name == "sqlite":  # it would use no index for LIKE
        begins = and_(InstanceRow.id >= f"{job}-", InstanceRow.id < f"{job}.")
    else:
        begins = InstanceRow.id.startswith(f"{job}-", autoescape=True)
    return session.scalars(select(InstanceRow).where(or_(InstanceRow.job == job, begins))).all()


def _places(rows: Sequence[InstanceRow], job: str) -> list[Place]:
    """Return all places that a job has used so far."""
    return places_of(
        job, ((row.id, row.job, Place(row.slot, row.generation, row.phase)) for row in rows)
    )


class _HoldingRows(NamedTuple):
    """Rows of a `Holding`, and the phase of its job."""

    instance: InstanceRow
    phase: JobPhase
    launch: IntentRow
    termination: IntentRow | None
    last_line: LedgerRow | None


def _holding_rows(session: Session, instance: str) -> _HoldingRows:
    """Return the rows of an instance, its intents and its bill, read by one statement.

    Raises:
        UnknownInstance: no instance has this id.
    """
    rows = session.execute(_HOLDINGS.where(InstanceRow.id == instance)).all()
    if not rows:
        raise unknown_instance(instance)
    intents = {intent.kind: intent for _, _, intent, _ in rows}
    row, phase, _, last_line = rows[0]
    launch, termination = intents[IntentKind.LAUNCH], intents.get(IntentKind.TERMINATE)
    return _HoldingRows(row, phase, launch, termination, last_line)


def _keep_intent(session: Session, row: IntentRow | None, intent: Intent) -> None:
    if row is not None:
        row.take(intent)
        return
    row = IntentRow()
    row.take(intent, but="id")
    session.add(row)
