"""Use of instances' time in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import date

from autoscaler.domain.time_use import LostWork, TimeCount, TimeUse
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.time_uses import KeptCount, TimeUses, day_of, first_count


class MemoryTimeUses(TimeUses):
    """Counts by job and instance. The shared tables hold lost work."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._counts: dict[str, dict[str, KeptCount]] = defaultdict(dict)
        self._days: dict[date, TimeUse] = defaultdict(TimeUse)

    def count(self, instance: str, job: str, count: TimeCount, held_seconds: float | None) -> None:
        with self._tables.lock:
            known = self._counts[job].get(instance)
            if known is None:
                kept, news = first_count(count, held_seconds)
            else:
                following = known.next(count)
                if following is None:
                    return
                kept, news = following, following.whole.use.beyond(known.whole.use)
            self._counts[job][instance] = kept
            now_seconds = count.begun_seconds + count.use.total_seconds
            self._days[day_of(now_seconds)] += news

    def of_jobs(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, TimeCount]]:
        with self._tables.lock:
            return {
                job: {instance: kept.whole for instance, kept in self._counts.get(job, {}).items()}
                for job in jobs
            }

    def lost_work_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[LostWork, ...]]:
        with self._tables.lock:
            return {job: tuple(self._tables.lost_work.get(job, ())) for job in jobs}

    def days(self, first: date) -> Mapping[date, TimeUse]:
        with self._tables.lock:
            return {day: use for day, use in self._days.items() if day >= first}

    def keep(self, now_seconds: float) -> None:
        """Do nothing: nothing outlives the process."""
