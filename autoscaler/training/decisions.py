"""Decisions on the batch of a round: their log, and those that are repeated from another run's."""

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
    BatchScript,
    batches_of,
)
from autoscaler.training.state.training_state import Counters
from autoscaler.training.watch import present_watch

# Noise scales that differ by less are taken for the same.
_SAME_NOISE: Final = 0.01


def repeated(agreement: Agreement, batches: BatchScript | None, step: int) -> Agreement:
    """Return what holds in a round that begins after `step` steps.

    It is what was agreed on, or has the batch of the log that is repeated. The round then ends
    where the log has another batch.
    """
    if batches is None:
        return agreement
    held, left = batches.at(step), batches.steps_left(step)
    return replace(
        agreement,
        batch_total=held.batch,
        gradient_square=held.gradient_square,
        gradient_variance=held.gradient_variance,
        steps=agreement.steps if left is None else min(agreement.steps, left),
    )


def decision_of(
    agreement: Agreement, step: int, initial: int, learning_rate: float
) -> BatchDecision:
    """Return what the log of batches says of a round that begins after `step` steps."""
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
    """Return the gradient square and variance to propose; small changes do not count.

    Each change is an entry of the log of batches, and the gain depends on their ratio alone.
    """
    known = counters.gradient_square, counters.gradient_variance
    if noise is None:
        return known
    before, now = known[1] * noise.gradient_square, noise.gradient_variance * known[0]
    is_same = before > 0 and abs(now / before - 1) <= _SAME_NOISE
    return known if is_same else (noise.gradient_square, noise.gradient_variance)


def batches_to_repeat(path: str | None, bounds: BatchBounds) -> BatchScript | None:
    """Return the batches that this run repeats from the log at `path`, or that the job names.

    Raises:
        ValueError: the log can't be used.
    """
    path = path or os.environ.get(BATCH_LOG_VARIABLE)
    return batches_of(Path(path), bounds.initial) if path else None


def batch_log_file(setup: TrainingSetup | None, bounds: BatchBounds) -> Path | None:
    """Return the file among the job's outputs that gets the log of its batches.

    Trials have no outputs, and where the batch is fixed there is nothing to repeat.
    """
    is_job = setup is not None and JOB_VARIABLE in os.environ and present_watch() is None
    return Path.cwd() / BATCH_LOG_FILE if is_job and bounds.may_grow else None
