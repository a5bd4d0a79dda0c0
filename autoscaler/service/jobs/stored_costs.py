"""Sums of the ledger of a store, which are kept up to date."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from threading import Lock

from autoscaler.ledger.running import CostSums, RunningCosts
from autoscaler.store.store import Store


class StoredCosts:
    """Costs of all instances by the ledger of a store. Threads may share this."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._running = RunningCosts()

    def sums(self, now_seconds: float) -> CostSums:
        """Return the costs until now."""
        with self._lock:
            self._sync()
            return self._running.sums(now_seconds)

    def usd_per_hour(self, now_seconds: float) -> Decimal:
        """Return the price of all instances whose bill is open."""
        with self._lock:
            self._sync()
            return self._running.usd_per_hour(now_seconds)

    def payers(self, first: date, last: date) -> frozenset[str]:
        """Return the jobs that may have charges on the days (UTC) from `first` to `last`."""
        with self._lock:
            self._sync()
            return self._running.payers(first, last)

    def _sync(self) -> None:
        """Add the new lines of the ledger."""
        if not self._running.add(*self._store.ledger.after(self._running.number)):
            self._running = RunningCosts()
            self._running.add(*self._store.ledger.after(0))
