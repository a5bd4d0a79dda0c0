"""Calls of trials and leases of studies, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.trials import Leases, Trials, already_driven, refuse_superseded


class MemoryTrials(Trials):
    """Calls by job, incarnation and number, in order of arrival."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._starts: dict[str, list[tuple[str, float]]] = defaultdict(list)
        self._calls: dict[tuple[str, int, int], TrialCall] = {}
        self._answers: dict[tuple[str, int], dict[int, TrialAnswer]] = defaultdict(dict)

    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        with self._lock:
            self._tables.job(job)
            starts, start = self._starts[job], (instance, started_seconds)
            if start not in starts:
                starts.append(start)
            incarnation = starts.index(start) + 1
            self._refuse_superseded(job, incarnation)
            return incarnation

    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> str:
        with self._lock:
            self._refuse_superseded(job, incarnation)
            for call in calls:
                self._calls.setdefault((job, incarnation, call.number), call)
            return self._tables.job(job).spec.study or ""

    def waiting(self, study: str, limit: int = 1000) -> tuple[WaitingCall, ...]:
        with self._lock:
            waiting = [
                WaitingCall(job, incarnation, call)
                for (job, incarnation, number), call in self._calls.items()
                if number not in self._answers[job, incarnation]
                and self._tables.job(job).spec.study == study
            ]
            return tuple(waiting[:limit])

    def answer(
        self, study: str, answers: Iterable[GivenAnswer], driver: str | None = None
    ) -> None:
        with self._lock:
            self._tables.require_driver(study, driver)
            for given in answers:
                is_call = (given.job, given.incarnation, given.answer.number) in self._calls
                if is_call and self._tables.job(given.job).spec.study == study:
                    known = self._answers[given.job, given.incarnation]
                    known.setdefault(given.answer.number, given.answer)

    def answers(self, job: str, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        with self._lock:
            known = self._answers[job, incarnation]
            return tuple(known[number] for number in sorted(known) if number > after)

    def _refuse_superseded(self, job: str, incarnation: int) -> None:
        is_distributed = self._tables.job(job).spec.distributed
        starts = self._starts[job]
        latest = len(starts)
        if is_distributed and 1 <= incarnation <= latest:
            instance, _ = starts[incarnation - 1]
            latest = max(
                number for number, (other, _) in enumerate(starts, 1) if other == instance
            )
        refuse_superseded(job, incarnation, latest)


class MemoryLeases(Leases):
    """Leases by study: the holder, and the end in seconds since the epoch."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._leases = tables.leases

    def take(
        self, study: str, holder: str, now_seconds: float, seconds: float, renews: bool = False
    ) -> None:
        with self._lock:
            known, until_seconds = self._leases.get(study, (holder, now_seconds))
            if known != holder and until_seconds > now_seconds:
                raise already_driven(study, known, until_seconds - now_seconds)
            if renews:
                self._tables.require_driver(study, holder)
            self._leases[study] = (holder, now_seconds + seconds)

    def leave(self, study: str, holder: str) -> None:
        with self._lock:
            if study in self._leases and self._leases[study][0] == holder:
                del self._leases[study]

    def holder(self, study: str, now_seconds: float) -> str | None:
        holder, until_seconds = self._leases.get(study, (None, now_seconds))
        return holder if until_seconds > now_seconds else None
