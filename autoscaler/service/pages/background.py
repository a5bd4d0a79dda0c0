"""Values that take long to compute: a page shows the last one, and a worker computes the next."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from autoscaler.clock import Clock

Key = TypeVar("Key")
Value = TypeVar("Value")

_log = logging.getLogger(__name__)
_MOST_KEPT: Final = 1_000
# A computation is repeated after this many times its own length at the earliest, so that it takes
# at most a twentieth of a core.
_MOST_IDLE: Final = 20.0


@dataclass(slots=True)
class _Computed(Generic[Value]):
    """Last value of a key, the time of its computation, and the one under way."""

    value: Value | None = None
    at_seconds: float = float("-inf")
    took_seconds: float = 0.0
    under_way: Future[Value] | None = None


class Background(Generic[Key, Value]):
    """Values by key, computed by `workers` at most once in `fresh_seconds`, slow ones less often.

    Threads may share this. The least recently used values beyond 1,000 are forgotten.
    """

    def __init__(
        self,
        compute: Callable[[Key], Value],
        fresh_seconds: float,
        workers: Executor,
        clock: Clock,
    ) -> None:
        self._compute = compute
        self._fresh_seconds = fresh_seconds
        self._workers = workers
        self._clock = clock
        self._lock = Lock()
        self._values: OrderedDict[Key, _Computed[Value]] = OrderedDict()

    def get(self, key: Key, wait_seconds: float = 0.0) -> Value | None:
        """Return the newest value of a key, waiting at most so long for a fresh one.

        An earlier value is returned if the fresh one takes longer. None: there is none yet, or
        its computation failed.
        """
        with self._lock:
            known = self._values.pop(key, None) or _Computed[Value]()
            self._values[key] = known
            if len(self._values) > _MOST_KEPT:
                self._values.popitem(last=False)
            age_seconds = self._clock.monotonic() - known.at_seconds
            due_seconds = max(self._fresh_seconds, _MOST_IDLE * known.took_seconds)
            if age_seconds >= due_seconds and known.under_way is None:
                known.under_way = self._workers.submit(self._computed, key, known)
            under_way = known.under_way
        if under_way is not None:
            with suppress(Exception):  # one of the computation is logged where it was raised
                return under_way.result(wait_seconds)
        return known.value

    def last(self, key: Key) -> Value | None:
        """Return the last value of a key, and compute nothing; None: there is none yet."""
        with self._lock:
            known = self._values.get(key)
            return None if known is None else known.value

    def _computed(self, key: Key, known: _Computed[Value]) -> Value:
        began_seconds = self._clock.monotonic()
        try:
            known.value = value = self._compute(key)
        except Exception:
            _log.exception("a value of a page could not be computed")
            raise
        finally:
            with self._lock:  # only after `get` has noted the computation
                known.at_seconds = self._clock.monotonic()
                known.took_seconds = known.at_seconds - began_seconds
                known.under_way = None
        return value
