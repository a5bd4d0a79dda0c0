"""All jobs are stopped, and all is given back: the end of a deployment, or of a process's own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from autoscaler.clock import Clock
from autoscaler.domain.errors import Conflict
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


def outlive(is_there: Callable[[], bool], clock: Clock) -> None:
    """Return when whoever the controller runs for is there no more."""
    while is_there():
        clock.sleep(_LOOK_SECONDS)


def stop_everything(store: Store, now_seconds: float) -> int:
    """Stop every job, with its checkpoint; returns how many.

    Who drove studies drives them no more.
    """
    for study in {job.spec.study for job in store.jobs.all() if job.spec.study is not None}:
        driver = store.leases.holder(study, now_seconds)
        if driver is not None:
            store.leases.leave(study, driver)
    jobs = store.jobs.alive()
    for job in jobs:
        with contextlib.suppress(Conflict):  # it has just ended
            store.jobs.request_stop(job.id, now_seconds)
    return len(jobs)


def give_everything_back(
    store: Store, wake: Callable[[], None], clock: Clock, most_seconds: float
) -> bool:
    """Stop everything, and wait until nothing is held; the loop goes on.

    False if something is held after `most_seconds`.
    """
    now_seconds = clock.now()
    stop_everything(store, now_seconds)
    wake()
    while store.instances.alive() and clock.now() - now_seconds < most_seconds:
        clock.sleep(_LOOK_SECONDS)
    left = len(store.instances.alive())
    if left:
        _log.error("%d instances may still run: they end by themselves without a controller", left)
    else:
        _log.info("everything is given back")
    return not left
