"""Calls to a cloud: written down before they are made, settled when their outcome is known."""

from __future__ import annotations

from sqlalchemy import exists, select
from sqlalchemy.orm import Session, aliased

from autoscaler.domain.errors import Conflict
from autoscaler.domain.intent import Intent, IntentKind, IntentState
from autoscaler.store.database import Database
from autoscaler.store.schema import IntentRow


class Intents:
    """The intents of one store; they are written by `Instances`. `attempts` counts failed calls.

    After a crash those that are pending are made again: a launch with its token is the same
    launch, and terminating twice is terminating once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, now_seconds: float) -> tuple[Intent, ...]:
        """The calls that are due, the oldest first.

        A termination waits until the launch of its instance is settled: before, it is not known
        what to terminate, and a launch that is on its way would be left over.
        """
        launch = aliased(IntentRow)
        launch_is_open = exists().where(
            launch.instance == IntentRow.instance,
            launch.kind == IntentKind.LAUNCH,
            launch.state == IntentState.PENDING,
        )
        due = select(IntentRow).where(
            IntentRow.state == IntentState.PENDING,
            IntentRow.not_before_seconds <= now_seconds,
            (IntentRow.kind == IntentKind.LAUNCH) | ~launch_is_open,
        )
        with self._database.read() as session:
            return tuple(row.to(Intent) for row in session.scalars(due.order_by(IntentRow.id)))

    def of_instance(self, instance: str) -> tuple[Intent, ...]:
        """All intents of one instance, the oldest first."""
        rows = select(IntentRow).where(IntentRow.instance == instance).order_by(IntentRow.id)
        with self._database.read() as session:
            return tuple(row.to(Intent) for row in session.scalars(rows))

    def done(self, intent: int) -> None:
        """The call succeeded. To say so again changes nothing.

        Raises:
            Conflict: there is no such intent, or it was given up.
        """
        with self._database.write() as session:
            row = _row(session, intent)
            if row.state is IntentState.FAILED:
                raise Conflict(f"intent {intent} was given up: {row.error}")
            row.state = IntentState.DONE
            row.error = None

    def failed(self, intent: int, error: str, retry_seconds: float | None) -> None:
        """The call failed: make it again from `retry_seconds` on, or give it up if that is None.

        A launch is given up with `Instances.launch_failed`, which ends its instance too. A
        launch that is settled already stays so; a termination that was told to the cloud but
        had no effect may be made again.

        Raises:
            Conflict: there is no such intent, or it is a launch and not to be made again.
        """
        with self._database.write() as session:
            row = _row(session, intent)
            is_launch = row.kind is IntentKind.LAUNCH
            if is_launch and row.state is not IntentState.PENDING:
                return
            if is_launch and retry_seconds is None:
                raise Conflict(f"intent {intent} is a launch: end its instance, {row.instance}")
            row.attempts += 1
            row.error = error
            row.state = IntentState.FAILED if retry_seconds is None else IntentState.PENDING
            if retry_seconds is not None:
                row.not_before_seconds = retry_seconds


def add_launch(session: Session, instance: str, token: str, now_seconds: float) -> None:
    """Write down the launch of a new instance."""
    _add(session, IntentKind.LAUNCH, instance, token, now_seconds)


def ask_termination(
    session: Session, instance: str, now_seconds: float, again: bool = False
) -> None:
    """Write down the termination of an instance, unless that is pending or, not `again`, done."""
    row = _of_kind(session, instance, IntentKind.TERMINATE)
    if row is None:
        launch = _of_kind(session, instance, IntentKind.LAUNCH)
        assert launch is not None, "an instance is ordered with its launch"
        _add(session, IntentKind.TERMINATE, instance, launch.token, now_seconds)
    elif again or row.state is IntentState.FAILED:
        row.state = IntentState.PENDING
        row.not_before_seconds = now_seconds


def settle(
    session: Session,
    instance: str,
    kind: IntentKind,
    state: IntentState,
    error: str | None = None,
) -> None:
    """Settle the intent of that kind, if it is pending."""
    row = _of_kind(session, instance, kind)
    if row is not None and row.state is IntentState.PENDING:
        row.state = state
        row.error = error


def _add(
    session: Session, kind: IntentKind, instance: str, token: str, now_seconds: float
) -> None:
    session.add(
        IntentRow(
            kind=kind,
            instance=instance,
            token=token,
            state=IntentState.PENDING,
            attempts=0,
            not_before_seconds=now_seconds,
        )
    )


def _row(session: Session, intent: int) -> IntentRow:
    row = session.get(IntentRow, intent)
    if row is None:
        raise Conflict(f"no intent {intent}: it is not of this store")
    return row


def _of_kind(session: Session, instance: str, kind: IntentKind) -> IntentRow | None:
    rows = select(IntentRow).where(IntentRow.instance == instance, IntentRow.kind == kind)
    return session.scalars(rows).one_or_none()
