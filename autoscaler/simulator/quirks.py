"""What the published simulators do and nobody means, to be compared with their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quirks:
    """Off by default. Source: the simulator of Pollux (OSDI'21).

    Attributes:
        lone_accumulation: a single device whose batch is above the initial one takes it in two
            micro-steps at least, and a prediction for a single device always does.
        epoch_uncounted: what an oracle hears is left of a job lacks the epoch under way; in the
            last epoch it is one step.
        device_batches: the most examples that one device takes, by application.
        batch_by_model: trainers choose their batch by the fitted model alone.
        interference_untold: step times are told as if no other job were in the way.
    """

    lone_accumulation: bool = False
    epoch_uncounted: bool = False
    device_batches: Mapping[str, int] = field(default_factory=dict)
    interference_untold: bool = False
    batch_by_model: bool = False
