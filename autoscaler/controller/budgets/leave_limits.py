"""Time limits for instances to leave, the same for agents and controller."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.transfer import FREE, MOST_BYTES, Transfer, TransferAccount
from autoscaler.store.store import Store

# A script that has to leave ends its round and takes part in one more, each one step if steps are
# long. It waits for a checkpoint being written and may have to write another. That makes two
# steps and two checkpoints, doubled as a safety margin.
_PATIENCE: Final = 4.0
# Upper limit, because a job's own reports can't be trusted: a script may never leave.
_LONGEST_SECONDS: Final = 3600.0
# Limits are rounded up to multiples of this: each new value is written by every agent of the job.
_GRAIN_SECONDS: Final = 30.0
# Time for the agent to receive the order, and to report after the script's end.
_AGENT_SECONDS: Final = 30.0


def script_seconds(store: Store, job: JobRecord, least_seconds: float) -> float:
    """Return the seconds that a script has to leave before its agent ends it.

    A restartable job has the grace of its command in addition.
    """
    step_seconds = store.measurements.step_seconds(job.id) or 0.0
    checkpoint_seconds = (job.report.checkpoint.seconds if job.report else None) or 0.0
    needed_seconds = min(_PATIENCE * (step_seconds + checkpoint_seconds), _LONGEST_SECONDS)
    grace_seconds = job.spec.restart.grace_seconds if job.spec.restart else 0.0
    least_seconds += grace_seconds
    return max(least_seconds, _GRAIN_SECONDS * math.ceil(needed_seconds / _GRAIN_SECONDS))


def longest_seconds(store: Store, job: JobRecord, least_seconds: float) -> float:
    """Return the seconds until a released instance is terminated at the latest."""
    return script_seconds(store, job, least_seconds) + _AGENT_SECONDS


def usual_seconds(job: JobRecord) -> float:
    """Return the expected seconds for a job to leave: a checkpoint, and a margin for the drain."""
    written = job.report.checkpoint.seconds if job.report else None
    return 5.0 + 2.0 * (written or 0.0)


def last_saves_usd(jobs: Iterable[JobRecord], held: Iterable[HeldInstance]) -> Decimal:
    """Return the US dollars for sending each job's last state to the storage of its files.

    One of the job's instances sends it, assumed to be the most expensive. `held` may include
    instances of other jobs.
    """
    dearest: dict[str, TransferAccount] = {}
    for instance in held:
        dearest_so_far = dearest.get(instance.job, instance.transfer)
        dearest[instance.job] = max(dearest_so_far, instance.transfer, key=_upload_usd_per_gb)
    total_usd = Decimal(0)
    for job in jobs:
        written = (job.report.checkpoint.bytes if job.report else None) or 0
        sent = Transfer(sent_bytes=min(max(written, 0), MOST_BYTES))
        total_usd += dearest.get(job.id, FREE).usd(sent)
    return total_usd


def _upload_usd_per_gb(account: TransferAccount) -> Decimal:
    return account.upload_usd_per_gb


def end_seconds(store: Store, job: JobRecord, held: HeldInstance, least_seconds: float) -> float:
    """Return when a released instance is terminated, whether or not its script has left.

    In seconds since the Unix epoch. A reclaimed instance may use all of its notice. Infinity if
    the instance was not released.
    """
    if held.draining_seconds is None:
        return math.inf
    if held.reclaim_seconds is not None:
        return held.reclaim_seconds
    return held.draining_seconds + longest_seconds(store, job, least_seconds)
