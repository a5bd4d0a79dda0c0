"""Schedule of gradient-square samples: as frequent as the noise scale needs, within a time budget.

A sample costs a pass over the gradients before and after their sum, and splits a lone rank's step
in two. In the long run samples take at most `_TIME_SHARE` of the training time. The first samples
are worth more. Until the noise scale is known, every second step is sampled, up to the budget of
`_START_UP_STEPS` steps. That debt is repaid: until the share holds over all steps so far, samples
take half of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_TIME_SHARE = 0.003
_START_UP_STEPS = 3000
# At least one step in two has no sample: step times are measured in such steps.
_MIN_STEPS_PER_SAMPLE = 2
_MIN_SAMPLES = 24
_MAX_SAMPLES = 100
_PRECISE_DEVIATION = 0.06
# Weight of a new round's cost per sample in the moving average.
_NEW_WEIGHT = 0.2


@dataclass(slots=True)
class SamplingBudget:
    """Time of training and of its samples since the job began, equal on every rank."""

    trained_seconds: float = 0.0
    sampled_seconds: float = 0.0
    samples: float = 0.0
    sample_seconds: float = 0.0

    def count(self, trained_seconds: float, sampled_seconds: float, samples: float) -> None:
        """Add a round of `trained_seconds`, and `samples` that took `sampled_seconds`."""
        self.trained_seconds += trained_seconds
        self.sampled_seconds += sampled_seconds
        if samples > 0:
            cost_seconds = sampled_seconds / samples
            new_share = _NEW_WEIGHT if self.samples > 0 else 1.0
            self.sample_seconds += new_share * (cost_seconds - self.sample_seconds)
        self.samples += samples

    def steps_per_sample(self, step_seconds: float, log_deviation: float | None) -> int:
        """Return the number of steps per sample, a power of 2.

        The power of 2 makes changes rare: workers prefetch the micro-steps of a lone rank's
        sampled steps.

        Args:
            step_seconds: seconds of a step without a sample; 0 if none was timed yet.
            log_deviation: standard deviation of the noise scale's logarithm; None if the noise
                scale is unknown.
        """
        if step_seconds <= 0 or self._is_starting_up(step_seconds, log_deviation):
            return _MIN_STEPS_PER_SAMPLE
        in_debt = self.sampled_seconds > _TIME_SHARE * self.trained_seconds
        share = _TIME_SHARE / 2 if in_debt else _TIME_SHARE
        steps = max(self.sample_seconds / (share * step_seconds), _MIN_STEPS_PER_SAMPLE)
        return int(2 ** math.ceil(math.log2(steps)))

    def _is_starting_up(self, step_seconds: float, log_deviation: float | None) -> bool:
        is_precise = log_deviation is not None and log_deviation <= _PRECISE_DEVIATION
        is_known = self.samples >= _MAX_SAMPLES or (self.samples >= _MIN_SAMPLES and is_precise)
        return not is_known and self.sampled_seconds < _TIME_SHARE * _START_UP_STEPS * step_seconds
