"""Unintended behaviour of published simulators, for comparison with their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quirks:
    """Switches for the quirks of Pollux's simulator (OSDI'21), off by default.

    Attributes:
        lone_accumulation: a single device whose batch exceeds the initial one takes it in at least
            two micro-steps, and a prediction for a single device always does.
        epoch_uncounted: oracles get the remaining work without the current epoch; in the last
            epoch they get one step.
        device_batches: application -> most examples that one device takes.
        interference_untold: reported step times omit the slowdown by other jobs.
        batch_by_model: trainers choose their batch by the fitted model alone.
    """

    lone_accumulation: bool = False
    epoch_uncounted: bool = False
    device_batches: Mapping[str, int] = field(default_factory=dict)
    interference_untold: bool = False
    batch_by_model: bool = False
