"""Batch decisions of a round: their log entries, and replay from another run's log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.training import BATCH_LOG_VARIABLE, JOB_VARIABLE, TrainingSetup
from autoscaler.training.members.rounds import Agreement
from autoscaler.training.state.batch_log import (
    BATCH_LOG_FILE,
    BatchDecision,
    BatchReplay,
    batches_of,
)
from autoscaler.training.state.training_state import Counters
from autoscaler.training.watch import present_watch

# Noise scales that differ by at most this fraction count as equal.
_SAME_NOISE: Final = 0.01


def repeated(agreement: Agreement, batches: BatchReplay | None, step: int) -> Agreement:
    """Return the agreement of a round that begins after `step` steps, with any replayed batch.

    With a replayed log, the batch is the log's, and the round ends before the log's next change.
    """
    if batches is None:
        return agreement
    replayed, steps_left = batches.at(step), batches.steps_left(step)
    return replace(
        agreement,
        batch_total=replayed.batch,
        gradient_square=replayed.gradient_square,
        gradient_variance=replayed.gradient_variance,
        steps=agreement.steps if steps_left is None else min(agreement.steps, steps_left),
    )


def decision_of(
    agreement: Agreement, step: int, initial: int, learning_rate: float
) -> BatchDecision:
    """Return the batch log's entry for a round that begins after `step` steps."""
    has_gain = agreement.batch_total > initial
    return BatchDecision(
        step=step,
        batch=agreement.batch_total,
        initial_batch=initial,
        instances=agreement.replicas,
        ranks=agreement.ranks,
        learning_rate=learning_rate,
        gradient_square=agreement.gradient_square if has_gain else 0.0,
        gradient_variance=agreement.gradient_variance if has_gain else 0.0,
    )


def gain_inputs(counters: Counters, noise: NoiseScale | None) -> tuple[float, float]:
    """Return the squared gradient norm and variance to propose; small changes do not count.

    Each change adds an entry to the batch log, and the gain depends on their ratio alone.
    """
    present = counters.gradient_square, counters.gradient_variance
    if noise is None:
        return present
    before, now = present[1] * noise.gradient_square, noise.gradient_variance * present[0]
    is_same = before > 0 and abs(now / before - 1) <= _SAME_NOISE
    return present if is_same else (noise.gradient_square, noise.gradient_variance)


def batches_to_repeat(path: str | None, bounds: BatchBounds) -> BatchReplay | None:
    """Return the log to replay: at `path`, or else in CASTOR_BATCH_LOG; None without either.

    Raises:
        ValueError: the log can't be used.
    """
    path = path or os.environ.get(BATCH_LOG_VARIABLE)
    return batches_of(Path(path), bounds.initial) if path else None


def batch_log_file(setup: TrainingSetup | None, bounds: BatchBounds) -> Path | None:
    """Return the path of the batch log among the job's outputs; None if there is none.

    Trials have no outputs, and a fixed batch needs no log.
    """
    is_job = setup is not None and JOB_VARIABLE in os.environ and present_watch() is None
    return Path.cwd() / BATCH_LOG_FILE if is_job and bounds.may_grow else None
