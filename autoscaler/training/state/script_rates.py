"""Learning rates of the script, where it goes on from a checkpoint with others than before.

A checkpoint holds the learning rates of the optimizer and its schedule, as they were at that step.
They stand, unless the script now begins with another learning rate than the run that saved them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

_RATES_OF_GROUP: Final = ("lr", "initial_lr", "max_lr", "min_lr")
_RATES_OF_SCHEDULE: Final = ("base_lrs", "max_lrs", "_last_lr")


def script_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the learning rate that the script gave each group, before its schedule changed it."""
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]


def rate_ratios(before: Sequence[float], now: Sequence[float]) -> list[float] | None:
    """Return what learning rates of an earlier run are multiplied by, or None where they stand."""
    if list(before) == list(now) or len(before) != len(now) or not all(before):
        return None
    return [rate / earlier for earlier, rate in zip(before, now, strict=True)]


def scale_groups(groups: Sequence[dict[str, Any]], ratios: Sequence[float]) -> None:
    """Multiply the learning rates of each group, which a checkpoint has brought."""
    for group, ratio in zip(groups, ratios, strict=True):
        for key in _RATES_OF_GROUP:
            if key in group:
                group[key] = group[key] * ratio


def scaled_schedule(state: Any, ratios: Sequence[float]) -> Any:
    """Return the state of a schedule with its learning rates multiplied, nested ones included."""
    if isinstance(state, dict):
        return {
            key: (
                [rate * ratio for rate, ratio in zip(value, ratios, strict=True)]
                if key in _RATES_OF_SCHEDULE
                else scaled_schedule(value, ratios)
            )
            for key, value in state.items()
        }
    return [scaled_schedule(each, ratios) for each in state] if isinstance(state, list) else state
