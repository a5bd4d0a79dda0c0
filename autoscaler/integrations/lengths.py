"""Length of a training whose script counts epochs, or steps of a fixed batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_ROUNDING_EXAMPLES: Final = 1e-6


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """Length of a training.

    Attributes:
        batch_size: examples of a step, over all devices, for which the script is written.
        pass_examples: examples of an epoch.
        pass_steps: steps of an epoch with this batch size.
        steps: steps with this batch size in all.
        total_examples: useful examples in all.
    """

    batch_size: int
    pass_examples: int
    pass_steps: int
    steps: int
    total_examples: int

    @property
    def epochs(self) -> float:
        """Epochs in all, as `job.epochs` takes them."""
        return self.total_examples / self.pass_examples

    @property
    def scheduler_steps(self) -> int:
        """Steps of a schedule, which the session makes once per `batch_size` useful examples."""
        return max(self.total_examples // self.batch_size, 1)

    def epochs_of(self, progress_examples: float) -> float:
        """Return the epochs that some useful examples are."""
        return progress_examples / self.pass_examples

    def is_over(self, progress_examples: float) -> bool:
        """Return whether training has reached its end."""
        return progress_examples >= self.total_examples - _ROUNDING_EXAMPLES

    def steps_in_all(self, step: int, progress_examples: float, batch_size: int) -> int:
        """Return the steps that the training will have had.

        Args:
            step: steps so far.
            progress_examples: useful examples so far.
            batch_size: examples of a step at present. With a larger one than the script's the
                result is an estimate.
        """
        if self.is_over(progress_examples):
            return step
        if batch_size == self.batch_size:
            return max(self.steps, step + 1)
        return step + max(math.ceil((self.total_examples - progress_examples) / batch_size), 1)


def training_length(
    examples: int, batch_size: int, drops_last: bool, epochs: float, steps: int = -1
) -> TrainingLength:
    """Return the length of a training.

    Args:
        examples: examples of the dataset's order.
        batch_size: examples of a step, over all devices.
        drops_last: whether a pass leaves out a rest that does not fill `batch_size`.
        epochs: epochs of the script; they need not be whole.
        steps: steps of the script, which replace `epochs`; below 1 for none.

    Raises:
        ValueError: there is nothing to train.
    """
    pass_examples = examples // batch_size * batch_size if drops_last else examples
    if pass_examples < 1:
        raise ValueError(
            f"the training data: {examples} examples don't fill a batch of {batch_size}: give "
            "more data, a smaller batch, or keep the last batch of a pass"
        )
    pass_steps = math.ceil(pass_examples / batch_size)
    if steps < 1:
        steps = math.ceil(epochs * pass_steps)
    if steps < 1:
        raise ValueError(f"epochs={epochs} must be above 0")
    passes, rest = divmod(steps, pass_steps)
    total_examples = passes * pass_examples + min(rest * batch_size, pass_examples)
    return TrainingLength(batch_size, pass_examples, pass_steps, steps, total_examples)
