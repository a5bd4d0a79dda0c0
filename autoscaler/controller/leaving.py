"""How long leaving may take: one answer for the agent and for the controller behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.transfer import FREE, MOST_BYTES, Transfer, TransferAccount
from autoscaler.store.store import Store

# A script that is told to leave ends its round and takes part in one more, a step each where
# steps are long; it waits for a checkpoint that is being written and may have to write another.
# That is two steps and two checkpoints, and as much again for a bad day.
_PATIENCE: Final = 4.0
# What a job tells of itself bounds nothing: a script that never leaves costs no more than this.
_LONGEST_SECONDS: Final = 3600.0
# Each new value is written down by every agent of the job.
_GRAIN_SECONDS: Final = 30.0
# From the agent's hearing of it, through the script's end, to its last word.
_AGENT_SECONDS: Final = 30.0


def script_seconds(store: Store, job: JobRecord, least_seconds: float) -> float:
    """How long a script that was told to leave may take before its agent ends it."""
    step_seconds = store.measurements.step_seconds(job.id) or 0.0
    checkpoint_seconds = (job.report.checkpoint.seconds if job.report else None) or 0.0
    needed_seconds = min(_PATIENCE * (step_seconds + checkpoint_seconds), _LONGEST_SECONDS)
    return max(least_seconds, _GRAIN_SECONDS * math.ceil(needed_seconds / _GRAIN_SECONDS))


def usual_seconds(job: JobRecord) -> float:
    """What leaving is likely to take: a checkpoint, and a margin for the drain."""
    written = job.report.checkpoint.seconds if job.report else None
    return 5.0 + 2.0 * (written or 0.0)


def last_saves_usd(jobs: Iterable[JobRecord], held: Iterable[HeldInstance]) -> Decimal:
    """What it costs to send each job's last state to where its files are: one of its own does.

    `held` may be other jobs' as well.
    """
    dearest: dict[str, TransferAccount] = {}
    for each in held:
        known = dearest.get(each.job, each.transfer)
        dearest[each.job] = max(known, each.transfer, key=_upload_usd_per_gb)
    found = Decimal(0)
    for job in jobs:
        written = (job.report.checkpoint.bytes if job.report else None) or 0
        sent = Transfer(sent_bytes=min(max(written, 0), MOST_BYTES))
        found += dearest.get(job.id, FREE).usd(sent)
    return found


def _upload_usd_per_gb(account: TransferAccount) -> Decimal:
    return account.upload_usd_per_gb


def end_seconds(store: Store, job: JobRecord, held: HeldInstance, least_seconds: float) -> float:
    """When an instance that was released is ended, whether it has left or not.

    One that is taken back may use all of its notice. Never, which is infinity, if it was not
    released.
    """
    if held.draining_seconds is None:
        return math.inf
    if held.reclaim_seconds is not None:
        return held.reclaim_seconds
    return held.draining_seconds + script_seconds(store, job, least_seconds) + _AGENT_SECONDS
