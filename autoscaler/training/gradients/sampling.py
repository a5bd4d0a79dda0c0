"""How often steps take gradient squares: as often as the noise scale needs, for little time.

A sample costs a pass over the gradients before and after their sum, and a lone rank's step is
split in two for it. In the long run samples take at most `_SHARE` of the time that training takes.
The first samples are worth more: until the noise scale is known, every second step is sampled, for
what `_SHARE` allows in `_START_UP_STEPS` steps at most. That is paid back: until the share holds
over all steps so far, samples take half of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_SHARE = 0.003
_START_UP_STEPS = 3000
# At least one step in two is as it is without samples: step times are those of such steps.
_CLOSEST_STEPS = 2
_FEWEST_SAMPLES = 24
_MOST_SAMPLES = 100
_PRECISE_DEVIATION = 0.06
# What the cost of the samples of one more round counts for, beside those before.
_NEW_SHARE = 0.2


@dataclass(slots=True)
class SamplingBudget:
    """Time that training and its samples have taken since the job began, on every rank alike."""

    trained_seconds: float = 0.0
    sampled_seconds: float = 0.0
    samples: float = 0.0
    sample_seconds: float = 0.0

    def count(self, trained_seconds: float, sampled_seconds: float, samples: float) -> None:
        """Take in a round of `trained_seconds`, of which its `samples` took `sampled_seconds`."""
        self.trained_seconds += trained_seconds
        self.sampled_seconds += sampled_seconds
        if samples > 0:
            cost_seconds = sampled_seconds / samples
            new_share = _NEW_SHARE if self.samples > 0 else 1.0
            self.sample_seconds += new_share * (cost_seconds - self.sample_seconds)
        self.samples += samples

    def steps_per_sample(self, step_seconds: float, log_deviation: float | None) -> int:
        """Return how many steps there are to a sample, a power of 2.

        It seldom changes so: workers fetch ahead what a lone rank's sampled steps are split into.

        Args:
            step_seconds: a step without a sample; 0 where none was timed yet.
            log_deviation: standard deviation of the noise scale's logarithm; None where the noise
                scale is not known.
        """
        if step_seconds <= 0 or self._starts_up(step_seconds, log_deviation):
            return _CLOSEST_STEPS
        in_debt = self.sampled_seconds > _SHARE * self.trained_seconds
        share = _SHARE / 2 if in_debt else _SHARE
        steps = max(self.sample_seconds / (share * step_seconds), _CLOSEST_STEPS)
        return int(2 ** math.ceil(math.log2(steps)))

    def _starts_up(self, step_seconds: float, log_deviation: float | None) -> bool:
        is_precise = log_deviation is not None and log_deviation <= _PRECISE_DEVIATION
        is_known = self.samples >= _MOST_SAMPLES or (
            self.samples >= _FEWEST_SAMPLES and is_precise
        )
        return not is_known and self.sampled_seconds < _SHARE * _START_UP_STEPS * step_seconds
