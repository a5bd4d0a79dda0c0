"""Receipts of a study's trials: what each trial cost, and for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import optuna

from autoscaler.domain.errors import UnknownJob
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect
from autoscaler.wire.cost_messages import receipt_fields
from hpo.protocol import attributes

_SHARE = "productive_share"


def receipts(
    study: optuna.Study, client: Client | None = None
) -> Mapping[int, Mapping[str, float]]:
    """Return the cost of each trial by its number, and keep it in the study.

    The fields are those of `receipt_fields` without a prefix, of all jobs of the trial together,
    as far as the controller knows them. Trials that have ended can't get attributes any more, so
    the study's user attribute `castor:receipts` holds them, by the trial's number as text.

    Args:
        study: a study that Castor has run.
        client: the controller; None: the one that serves here.

    Raises:
        Unavailable: no controller answers.
    """
    asked = connect() if client is None else client
    costs: dict[int, Mapping[str, float]] = {}
    for trial in study.get_trials(deepcopy=False):
        jobs = [
            *trial.user_attrs.get(attributes.EARLIER_JOBS, []),
            trial.user_attrs.get(attributes.JOB, ""),
        ]
        fields = _fields_of(asked, [job for job in jobs if _is_job(job)])
        if fields:
            costs[trial.number] = fields
    study.set_user_attr(attributes.RECEIPTS, {str(number): costs[number] for number in costs})
    return costs


def _is_job(name: str) -> bool:
    is_retry_mark = name.startswith("retry-of-")
    return bool(name) and not is_retry_mark and attributes.NO_JOB.fullmatch(name) is None


def _fields_of(client: Client, jobs: list[str]) -> dict[str, float]:
    """Return the sums of the jobs' fields; empty if the controller knows none of the jobs."""
    sums: dict[str, float] = defaultdict(float)
    for job in jobs:
        try:
            receipt = client.receipt(job)
        except UnknownJob:
            continue
        for name, value in receipt_fields(receipt, prefix="").items():
            sums[name] += value
    sums.pop(_SHARE, None)
    if sums.get("billed_seconds"):
        sums[_SHARE] = sums["useful_seconds"] / sums["billed_seconds"]
    return dict(sums)
