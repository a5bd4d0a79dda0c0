"""Facts of jobs that the only writer of a store keeps in memory, read for many jobs at once.

The first tick of a controller needs the facts of all jobs that have not ended, and a tick after
reports those of all jobs that have reported. One statement reads a kind of fact for a thousand
jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from sqlalchemy.orm import Session

from autoscaler.domain.job import JobRecord
from autoscaler.store.sql.cache import LiveRecords
from autoscaler.store.sql.database import Database

MOST_NAMES: Final = 10_000
"""Most values of a list in one statement, which databases limit."""

Fact = TypeVar("Fact")
Load: TypeAlias = Callable[[Session, Sequence[str]], Mapping[str, Fact]]
"""Read of one fact for each of some names."""


class FactCache:
    """Facts in memory by kind, of jobs and of their programs."""

    def __init__(self, database: Database, live: LiveRecords[JobRecord]) -> None:
        """Use a database, and the live jobs that its repositories keep."""
        self._database = database
        self._live = live

    def of_job(self, kind: str, job: str, load: Load[Fact]) -> Fact:
        """Return a fact of a job; one that is not in memory is read with those of live jobs."""
        return self._database.cached_of_kind(kind, job, self._jobs, load)

    def of_program(self, kind: str, program: str, load: Load[Fact]) -> Fact:
        """Return a fact of a program, as `of_job` does."""
        return self._database.cached_of_kind(kind, program, self._programs, load)

    def _jobs(self) -> Iterable[str]:
        return (job.id for job in self._live.all())

    def _programs(self) -> Iterable[str]:
        return dict.fromkeys(job.spec.program_name for job in self._live.all())


def batches(names: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield names in batches that one statement can take."""
    ordered = tuple(names)
    for first in range(0, len(ordered), MOST_NAMES):
        yield ordered[first : first + MOST_NAMES]


def grouped(
    names: Iterable[str], facts: Iterable[tuple[str, Fact]]
) -> dict[str, tuple[Fact, ...]]:
    """Return the facts of each name, in their order; an empty tuple for a name without facts."""
    groups: dict[str, list[Fact]] = {name: [] for name in names}
    for name, fact in facts:
        groups[name].append(fact)
    return {name: tuple(group) for name, group in groups.items()}
