"""Use of instances' time in a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import date
from threading import Lock
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import ForeignKey, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from autoscaler.domain.time_use import LostWork, TimeCount, TimeUse
from autoscaler.store.repositories.time_uses import KeptCount, TimeUses, day_of, first_count
from autoscaler.store.sql.columns import Document
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import batches, grouped
from autoscaler.store.sql.schema import Table

_KEEP_SECONDS: Final = 60.0
_MOST_AT_ONCE: Final = 1_000

Key = tuple[str, str]
"""Instance and job."""


class TimeUseRow(Table):
    """Use of an instance's time for a job. It is kept as long as the ledger, which it explains."""

    __tablename__ = "time_uses"

    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True, index=True)
    kept: Mapped[KeptCount] = mapped_column(Document(TypeAdapter(KeptCount)))


class TimeDayRow(Table):
    """Use of the time of all instances on one day (UTC, ISO 8601)."""

    __tablename__ = "time_days"

    day: Mapped[str] = mapped_column(primary_key=True)
    used: Mapped[TimeUse] = mapped_column(Document(TypeAdapter(TimeUse)))


class LostWorkRow(Table):
    """Work that a job made again after a failure."""

    __tablename__ = "lost_work"

    id: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    until_seconds: Mapped[float]
    seconds: Mapped[float]
    steps: Mapped[int]


class SqlTimeUses(TimeUses):
    """Repository on the tables of time uses, days and lost work."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._counts: dict[Key, KeptCount] = {}
        self._unsaved: dict[Key, None] = {}  # the longest unsaved ones first
        self._inserted: set[Key] = set()
        self._kept_seconds: dict[Key, float] = {}
        self._unsaved_days: dict[date, TimeUse] = defaultdict(TimeUse)

    def count(self, instance: str, job: str, count: TimeCount, held_seconds: float | None) -> None:
        key = instance, job
        with self._lock:
            known = self._counts.get(key) or self._stored(key)
            if known is None:
                kept, news = first_count(count, held_seconds)
            else:
                following = known.next(count)
                if following is None or following == known:
                    return
                kept, news = following, following.whole.use.beyond(known.whole.use)
            self._counts[key] = kept
            self._unsaved.setdefault(key)
            now_seconds = count.begun_seconds + count.use.total_seconds
            self._unsaved_days[day_of(now_seconds)] += news

    def _stored(self, key: Key) -> KeptCount | None:
        with self._database.read() as session:
            row = session.get(TimeUseRow, key)
        if row is None:
            return None
        self._inserted.add(key)
        return row.kept

    def of_jobs(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, TimeCount]]:
        counts: dict[str, dict[str, TimeCount]] = {job: {} for job in jobs}
        with self._database.read() as session:
            for some in batches(jobs):
                rows = select(TimeUseRow).where(TimeUseRow.job.in_(some))
                for row in session.scalars(rows):
                    counts[row.job][row.instance] = row.kept.whole
        with self._lock:
            for (instance, job), kept in self._counts.items():
                if job in counts:
                    counts[job][instance] = kept.whole
        return counts

    def lost_work_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[LostWork, ...]]:
        work: list[tuple[str, LostWork]] = []
        with self._database.read() as session:
            for some in batches(jobs):
                rows = (
                    select(LostWorkRow).where(LostWorkRow.job.in_(some)).order_by(LostWorkRow.id)
                )
                work += [(row.job, row.to(LostWork)) for row in session.scalars(rows)]
        return grouped(jobs, work)

    def days(self, first: date) -> Mapping[date, TimeUse]:
        rows = select(TimeDayRow).where(TimeDayRow.day >= first.isoformat())
        with self._database.read() as session:
            days = {date.fromisoformat(row.day): row.used for row in session.scalars(rows)}
        with self._lock:
            for day, news in self._unsaved_days.items():
                if day >= first:
                    days[day] = days.get(day, TimeUse()) + news
        return days

    def keep(self, now_seconds: float) -> None:
        with self._lock:
            due = [
                key
                for key in self._unsaved
                if now_seconds - self._kept_seconds.get(key, -_KEEP_SECONDS) >= _KEEP_SECONDS
            ][:_MOST_AT_ONCE]
            if not due:
                return
            counts = {key: self._counts[key] for key in due}
            news = dict(self._unsaved_days)
        with self._database.write() as session:
            for statement, keys in (
                (insert(TimeUseRow), counts.keys() - self._inserted),
                (update(TimeUseRow), counts.keys() & self._inserted),
            ):
                rows = [{"instance": key[0], "job": key[1], "kept": counts[key]} for key in keys]
                if rows:
                    session.execute(statement, rows)
            for day, use in news.items():
                _add_to_day(session, day, use)
        self._mark_kept(counts, news, now_seconds)

    def _mark_kept(
        self, counts: Mapping[Key, KeptCount], news: Mapping[date, TimeUse], now_seconds: float
    ) -> None:
        """Forget what is stored now, and instances without a count since the last time."""
        with self._lock:
            for day, use in news.items():
                left = self._unsaved_days.pop(day).beyond(use)
                if left != TimeUse():
                    self._unsaved_days[day] = left
            self._inserted |= counts.keys()
            for key, kept in counts.items():
                self._kept_seconds[key] = now_seconds
                del self._unsaved[key]
                if self._counts[key] != kept:  # counted again meanwhile
                    self._unsaved[key] = None
            for key in [key for key in self._counts if key not in self._unsaved]:
                if now_seconds - self._kept_seconds.get(key, now_seconds) >= _KEEP_SECONDS:
                    del self._counts[key], self._kept_seconds[key]
                    self._inserted.discard(key)


def _add_to_day(session: Session, day: date, use: TimeUse) -> None:
    row = session.get(TimeDayRow, day.isoformat())
    if row is None:
        session.add(TimeDayRow(day=day.isoformat(), used=use))
    else:
        row.used = row.used + use
