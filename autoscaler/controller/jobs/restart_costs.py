"""Switching costs of restartable jobs: measured restarts, and typical values before the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoscaler.controller.offers.estimates import in_steps
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.store.repositories.measurements import (
    RESTART_DURATION,
    SAVE_INTERVAL_DURATION,
    Mean,
)

# Typical restart before one was measured: SIGTERM, new processes, imports, and the checkpoint.
_USUAL_RESTART_SECONDS = 45.0
# Time at a new size until enough lines state progress.
_MEASURE_SECONDS = 20.0


def with_restarts(
    costs: SwitchingCosts, durations: Mapping[tuple[str | None, str], Mean]
) -> SwitchingCosts:
    """Return the costs of a job whose command is restarted at each change of its instances.

    - Each change pauses all instances for one restart. It follows a checkpoint, so that it repeats
      next to no work. New instances wait for that checkpoint, half an interval on average.
    - A lost instance costs two restarts, without it and with its replacement, and half an interval
      of repeated work.

    Args:
        costs: those of a job with a session.
        durations: measured durations by offer (None for any) and name.
    """
    restart = durations.get((None, RESTART_DURATION))
    interval = durations.get((None, SAVE_INTERVAL_DURATION))
    restart_seconds = in_steps(restart.seconds) if restart else _USUAL_RESTART_SECONDS
    interval_seconds = in_steps(interval.seconds) if interval else 0.0
    return replace(
        costs,
        pause_seconds=restart_seconds,
        restore_seconds=restart_seconds,
        loss_seconds=2.0 * restart_seconds + interval_seconds / 2.0,
        start_seconds={
            offer: seconds + interval_seconds / 2.0
            for offer, seconds in costs.start_seconds.items()
        },
        measure_seconds=_MEASURE_SECONDS,
        checkpoint_seconds=0.0,
        checkpoint_interval_seconds=interval_seconds or None,
    )
