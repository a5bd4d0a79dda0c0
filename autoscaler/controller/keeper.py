"""Keeps the lighthouses of jobs burning, and puts them out: in workers, one call a job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from autoscaler.controller.calls import Lighthouses, Workers, light
from autoscaler.controller.troubles import Troubles
from autoscaler.store.store import Store

_LOOK_SECONDS = 5.0


class LighthouseKeeper:
    """Looks after the lighthouses that launches have lit.

    A supervisor can die, and takes its server with it; a job that only trains calls nobody who
    would notice.
    """

    def __init__(self, store: Store, lighthouses: Lighthouses, workers: Workers) -> None:
        self._store = store
        self._lighthouses = lighthouses
        self._workers = workers
        self._looked_seconds: dict[str, float] = {}
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        self.troubles = Troubles("job")

    def keep_lit(self, job: str, now_seconds: float) -> None:
        """Have the job's lighthouse lit again should it be dark, every few seconds."""
        if now_seconds - self._looked_seconds.get(job, float("-inf")) >= _LOOK_SECONDS:
            self._looked_seconds[job] = now_seconds
            self._submit(job, partial(light, self._store, self._lighthouses, job))

    def put_out(self, job: str) -> None:
        """End the job's lighthouse; its address is forgotten only once it has ended."""
        self._looked_seconds.pop(job, None)
        self._submit(job, partial(self._release, job))

    def _release(self, job: str) -> None:
        self._lighthouses.release(job)
        self._store.jobs.set_lighthouse(job, None)

    def _submit(self, job: str, call: Callable[[], None]) -> None:
        with self._lock:
            if job in self._under_way:
                return
            self._under_way.add(job)
        self._workers.submit(partial(self._run, job, call))

    def _run(self, job: str, call: Callable[[], None]) -> None:
        try:
            self.troubles.attempt(job, "its lighthouse", call)
        finally:
            with self._lock:
                self._under_way.discard(job)
