"""Learning rates of a script that resumes from a checkpoint with other rates than before.

A checkpoint holds the learning rates of the optimizer and its schedule at its step. They stay in
force unless the script starts with another learning rate than the run that saved them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

_RATES_OF_GROUP: Final = ("lr", "initial_lr", "max_lr", "min_lr")
_RATES_OF_SCHEDULE: Final = ("base_lrs", "max_lrs", "_last_lr")


def script_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the learning rate of each group as the script set it, before any schedule."""
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]


def rate_ratios(before: Sequence[float], now: Sequence[float]) -> list[float] | None:
    """Return the factor for each group's saved learning rate; None if the rates stay in force.

    The rates also stay if the number of groups differs or an earlier rate is 0.
    """
    if list(before) == list(now) or len(before) != len(now) or not all(before):
        return None
    return [present / previous for previous, present in zip(before, now, strict=True)]


def scale_groups(groups: Sequence[dict[str, Any]], ratios: Sequence[float]) -> None:
    """Multiply the learning rates of each parameter group by the group's ratio."""
    for group, ratio in zip(groups, ratios, strict=True):
        for key in _RATES_OF_GROUP:
            if key in group:
                group[key] = group[key] * ratio


def scaled_schedule(state: Any, ratios: Sequence[float]) -> Any:
    """Return a schedule's state with its learning rates scaled, nested states included."""
    if isinstance(state, dict):
        return {
            key: (
                [rate * ratio for rate, ratio in zip(value, ratios, strict=True)]
                if key in _RATES_OF_SCHEDULE
                else scaled_schedule(value, ratios)
            )
            for key, value in state.items()
        }
    return (
        [scaled_schedule(nested, ratios) for nested in state] if isinstance(state, list) else state
    )
