"""Shutdown of a deployment: all jobs are stopped and all instances terminated."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from autoscaler.clock import Clock
from autoscaler.domain.errors import Conflict
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5


def wait_for_exit(is_there: Callable[[], bool], clock: Clock) -> None:
    """Return when `is_there` returns False: the process that the controller serves has ended."""
    while is_there():
        clock.sleep(_POLL_SECONDS)


def stop_everything(store: Store, now_seconds: float) -> int:
    """Stop every job, which saves its checkpoint; return how many.

    The leases of studies' drivers are released.
    """
    for study in {job.spec.study for job in store.jobs.all() if job.spec.study is not None}:
        driver = store.leases.holder(study, now_seconds)
        if driver is not None:
            store.leases.leave(study, driver)
    jobs = store.jobs.alive()
    for job in jobs:
        with contextlib.suppress(Conflict):  # the job has just ended
            store.jobs.request_stop(job.id, now_seconds)
    return len(jobs)


def terminate_all(
    store: Store, wake: Callable[[], None], clock: Clock, most_seconds: float
) -> bool:
    """Stop every job and wait until all instances are terminated; the control loop has to run.

    Returns:
        False if instances are still held after `most_seconds`.
    """
    now_seconds = clock.now()
    stop_everything(store, now_seconds)
    wake()
    while store.instances.alive() and clock.now() - now_seconds < most_seconds:
        clock.sleep(_POLL_SECONDS)
    remaining = len(store.instances.alive())
    if remaining:
        _log.error("%d instances may still run: they end when their leases expire", remaining)
    else:
        _log.info("all instances are terminated")
    return not remaining
