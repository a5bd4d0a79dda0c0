"""Instances: ordered, seen in the cloud, told of by their nodes, given back.

What costs money changes together or not at all: an order is written with the intent to launch
it, and what the cloud bills with the lines of the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session, aliased

from autoscaler.domain.errors import Conflict, UnknownInstance
from autoscaler.domain.instance import (
    CloudInstance,
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import EntryKind
from autoscaler.store.database import Database
from autoscaler.store.intents import add_launch, ask_termination, settle
from autoscaler.store.jobs import job_row
from autoscaler.store.ledger import add_line, last_line
from autoscaler.store.schema import InstanceRow

_AT_WORK = (
    InstancePhase.PREPARING,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.WAITING,
)
_LEAVING = (InstancePhase.DRAINING, InstancePhase.DRAINED)
_Other = aliased(InstanceRow)
_TRAINED_SECONDS = (
    select(func.max(_Other.training_seconds))
    .where(_Other.job == InstanceRow.job, _Other.offer == InstanceRow.offer)
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


class Instances:
    """The instances of all jobs of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def order(
        self,
        job: str,
        offer: Offer,
        devices_used: int,
        token_of: Callable[[str], str],
        now_seconds: float,
    ) -> HeldInstance:
        """Write down one more instance for a job, and the intent to launch it.

        It takes the lowest slot (from 0) in which no instance is left, and the next generation
        (from 1) of that slot; its id is `job-slot-generation`. `token_of` makes the launch token
        of that id and must be pure.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            phase = job_row(session, job).phase
            if phase not in (JobPhase.PENDING, JobPhase.RUNNING):
                raise Conflict(f"job {job} is {phase}: nothing is ordered for it any more")
            slot, generation = _next_place(session, job)
            row = InstanceRow(
                id=f"{job}-{slot}-{generation}",
                job=job,
                slot=slot,
                generation=generation,
                offer=offer.id,
                devices_used=devices_used,
                usd_per_hour=offer.usd_per_hour,
                minimum_billed_seconds=offer.minimum_billed_seconds,
                desired=Desired.PRESENT,
                phase=InstancePhase.REQUESTED,
                requested_seconds=now_seconds,
                facts={},
            )
            session.add(row)
            session.flush()
            add_launch(session, row.id, token_of(row.id), now_seconds)
            return row.to(HeldInstance)

    def get(self, instance: str) -> HeldInstance:
        """The instance of this id.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.read() as session:
            return instance_row(session, instance).to(HeldInstance)

    def alive(self) -> tuple[HeldInstance, ...]:
        """All instances of all jobs that have not ended, in the order of their requests."""
        return self._list(select(InstanceRow).where(InstanceRow.phase != InstancePhase.ENDED))

    def of_job(self, job: str, include_ended: bool = False) -> tuple[HeldInstance, ...]:
        """The instances of one job, in the order of their requests."""
        rows = select(InstanceRow).where(InstanceRow.job == job)
        if not include_ended:
            rows = rows.where(InstanceRow.phase != InstancePhase.ENDED)
        return self._list(rows)

    def never_trained(self, job: str) -> tuple[HeldInstance, ...]:
        """The instances of a job that were launched, and ended or released before they trained.

        Of each offer only those after the last one of that offer that began to train.
        """
        return self._list(_NEVER_TRAINED.where(InstanceRow.job == job))

    def release(self, instance: str, now_seconds: float) -> HeldInstance:
        """Want an instance no more: it drains if it is at work. It goes on being paid.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            _unwant(row, now_seconds)
            return row.to(HeldInstance)

    def request_termination(
        self, instance: str, now_seconds: float, facts: Mapping[str, str] | None = None
    ) -> HeldInstance:
        """Want an instance no more, and write down the intent to terminate it, once.

        `facts`, of why, are added to those known.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            _unwant(row, now_seconds)
            if row.phase is not InstancePhase.ENDED:
                row.facts = {**row.facts, **(facts or {})}
                ask_termination(session, instance, now_seconds)
            return row.to(HeldInstance)

    def observe_cloud(
        self, instance: str, seen: CloudInstance, now_seconds: float
    ) -> HeldInstance:
        """Take over what the cloud says. The same news may come any number of times.

        The first sight settles the launch and opens the bill at the cloud's time of launch;
        `TERMINATED` ends the instance and closes the bill at the cloud's time of end. The ledger
        follows the cloud alone: an instance whose launch was given up is billed if it is there
        after all, and terminated.

        Raises:
            Conflict: another cloud instance is known under this id.
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            if row.cloud_id not in (None, seen.id):
                raise Conflict(
                    f"instance {instance} is {row.cloud_id} in the cloud, "
                    f"and {seen.id} too: terminate {seen.id}"
                )
            if row.launched_seconds is None:
                _launched(session, row, seen, now_seconds)
            if seen.state is CloudState.TERMINATED:
                ended = seen.ended_seconds
                _ended(session, row, now_seconds if ended is None else ended)
            return row.to(HeldInstance)

    def bill_again(self, instance: str, now_seconds: float) -> bool:
        """Take back the end of an instance that its cloud still lists.

        It is billed on from the end that was written down, and terminated again. False if its
        bill is open, so that there is nothing to take back.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            last = last_line(session, instance)
            if last is None or last.kind is not EntryKind.CLOSE:
                return False
            # A moment later, less than is billed: no two lines of a kind have the same time.
            add_line(session, EntryKind.OPEN, row, math.nextafter(last.at_seconds, math.inf))
            ask_termination(session, instance, now_seconds, again=True)
            return True

    def launch_failed(self, instance: str, error: str, now_seconds: float) -> HeldInstance:
        """End an instance that the cloud refused to launch. It was never there and costs nothing.

        Only for a refusal that is sure: where the outcome is not known, the launch is tried
        again with its token.

        Raises:
            Conflict: the cloud has shown the instance.
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            if row.cloud_id is not None:
                raise Conflict(f"instance {instance} was launched: it is {row.cloud_id}")
            if row.phase is not InstancePhase.ENDED:
                row.phase = InstancePhase.ENDED
                row.ended_seconds = now_seconds
                for kind in IntentKind:
                    settle(session, instance, kind, IntentState.FAILED, error)
            return row.to(HeldInstance)

    def record_node(
        self,
        instance: str,
        phase: InstancePhase,
        now_seconds: float,
        facts: Mapping[str, str] | None = None,
    ) -> HeldInstance:
        """Take over what a node says of its instance; `facts` are added to those known.

        The phases of work follow each other in any order, as a script is started again. An
        instance that drains only gets on to `DRAINED`, and one that has ended hears nothing
        more.

        Raises:
            Conflict: `phase` is not for a node to tell.
            UnknownInstance: there is none.
        """
        if phase not in (*_AT_WORK, *_LEAVING):
            raise Conflict(f"instance {instance}: a node can't tell that it is {phase}")
        with self._database.write() as session:
            row = instance_row(session, instance)
            if row.phase is InstancePhase.ENDED:
                return row.to(HeldInstance)
            row.seen_seconds = max(now_seconds, row.seen_seconds or now_seconds)
            row.facts = {**row.facts, **(facts or {})}
            if row.joined_seconds is None:
                row.joined_seconds = now_seconds
            if _follows(phase, row.phase):
                row.phase = phase
            if row.phase is InstancePhase.TRAINING and row.training_seconds is None:
                row.training_seconds = now_seconds
            return row.to(HeldInstance)

    def use_devices(self, instance: str, devices_used: int) -> HeldInstance:
        """Have an instance train on this many of its devices.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            row.devices_used = devices_used
            return row.to(HeldInstance)

    def set_reclaim(self, instance: str, reclaim_seconds: float) -> HeldInstance:
        """Keep when the cloud takes an instance back; of several notices the earliest counts.

        Raises:
            UnknownInstance: there is none.
        """
        with self._database.write() as session:
            row = instance_row(session, instance)
            known_seconds = row.reclaim_seconds
            if known_seconds is None or reclaim_seconds < known_seconds:
                row.reclaim_seconds = reclaim_seconds
            return row.to(HeldInstance)

    def _list(self, rows: Select[InstanceRow]) -> tuple[HeldInstance, ...]:
        with self._database.read() as session:
            ordered = rows.order_by(InstanceRow.requested_seconds, InstanceRow.id)
            return tuple(row.to(HeldInstance) for row in session.scalars(ordered))


def instance_row(session: Session, instance: str) -> InstanceRow:
    """The row of an instance, or `UnknownInstance`."""
    row = session.get(InstanceRow, instance)
    if row is None:
        raise UnknownInstance(f"no instance {instance!r}: castor status lists those there are")
    return row


def _next_place(session: Session, job: str) -> tuple[int, int]:
    of_job = select(InstanceRow.slot, InstanceRow.generation, InstanceRow.phase)
    places = session.execute(of_job.where(InstanceRow.job == job)).all()
    held = {slot for slot, _, phase in places if phase is not InstancePhase.ENDED}
    slot = next(slot for slot in range(len(held) + 1) if slot not in held)
    return slot, 1 + max((generation for at, generation, _ in places if at == slot), default=0)


def _unwant(row: InstanceRow, now_seconds: float) -> None:
    if row.phase is InstancePhase.ENDED or row.desired is Desired.ABSENT:
        return
    row.desired = Desired.ABSENT
    row.draining_seconds = now_seconds
    if row.phase in _AT_WORK:
        row.phase = InstancePhase.DRAINING


def _launched(session: Session, row: InstanceRow, seen: CloudInstance, now_seconds: float) -> None:
    row.cloud_id = seen.id
    row.launched_seconds = seen.launched_seconds
    add_line(session, EntryKind.OPEN, row, seen.launched_seconds)
    settle(session, row.id, IntentKind.LAUNCH, IntentState.DONE)
    if row.phase is InstancePhase.REQUESTED:
        row.phase = InstancePhase.BOOTING
    elif row.phase is InstancePhase.ENDED:
        ask_termination(session, row.id, now_seconds)


def _ended(session: Session, row: InstanceRow, ended_seconds: float) -> None:
    last = last_line(session, row.id)
    assert last is not None, "what has ended was launched, and its bill opened"
    if last.kind is EntryKind.CLOSE:
        return
    row.phase = InstancePhase.ENDED
    row.ended_seconds = max(ended_seconds, last.at_seconds)
    add_line(session, EntryKind.CLOSE, row, row.ended_seconds)
    settle(session, row.id, IntentKind.TERMINATE, IntentState.DONE)


def _follows(phase: InstancePhase, known: InstancePhase) -> bool:
    if known is InstancePhase.DRAINED:
        return False
    return known is not InstancePhase.DRAINING or phase is InstancePhase.DRAINED
