"""Repair of jobs' lighthouses in worker threads, with one call per job at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from autoscaler.controller.act.intents import Lighthouses, Workers, light
from autoscaler.controller.errors import ErrorRecord
from autoscaler.store.store import Store

_CHECK_SECONDS = 5.0


class LighthouseRunner:
    """Repair of the lighthouses that launches have started.

    A supervisor that dies takes its server with it. A job that only trains would not notice.
    """

    def __init__(self, store: Store, lighthouses: Lighthouses, workers: Workers) -> None:
        self._store = store
        self._lighthouses = lighthouses
        self._workers = workers
        self._checked_seconds: dict[str, float] = {}
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self.troubles = ErrorRecord("job")

    def ensure_running(self, job: str, now_seconds: float) -> None:
        """Check every few seconds that the job's lighthouse runs, and restart it if not."""
        if now_seconds - self._checked_seconds.get(job, float("-inf")) >= _CHECK_SECONDS:
            self._checked_seconds[job] = now_seconds
            self._submit(job, partial(light, self._store, self._lighthouses, job))

    def release(self, job: str) -> None:
        """End the job's lighthouse; its address is kept until the lighthouse has ended."""
        self._checked_seconds.pop(job, None)
        self._submit(job, partial(self._release, job))

    def _release(self, job: str) -> None:
        self._lighthouses.release(job)
        self._store.jobs.set_lighthouse(job, None)

    def _submit(self, job: str, call: Callable[[], None]) -> None:
        with self._lock:
            if job in self._running:
                return
            self._running.add(job)
        self._workers.submit(partial(self._run, job, call))

    def _run(self, job: str, call: Callable[[], None]) -> None:
        try:
            self.troubles.attempt(job, "its lighthouse", call)
        finally:
            with self._lock:
                self._running.discard(job)
