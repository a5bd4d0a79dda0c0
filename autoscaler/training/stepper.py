"""One step on one rank: backward passes, the sampled squares, the commit, the move."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from autoscaler.domain.errors import DivergedError
from autoscaler.goodput.efficiency import gain
from autoscaler.training.buffers import BufferGuard
from autoscaler.training.crew import Crew
from autoscaler.training.finite import (
    MOST_SKIPPED_IN_A_ROW,
    gradient_norm,
    has_finite_gradients,
)
from autoscaler.training.learning_rate import (
    LearningRateInputs,
    LearningRateRule,
    scaled_groups,
)
from autoscaler.training.noise import GradientSquares
from autoscaler.training.reducer import Reducer
from autoscaler.training.scaling import LossScaling
from autoscaler.training.squares import SampledSquares
from autoscaler.training.state import TrainingState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What the script says about steps; `pass_examples` are those of one pass."""

    initial_batch: int
    pass_examples: int
    learning_rate_rule: LearningRateRule
    warmup_epochs: float = 0.0
    max_gradient_norm: float | None = None


@dataclass(slots=True)
class _SplitSample:
    """The squared gradient of a part of a step; `weight` is its part in the mean over the step."""

    square: Tensor
    weight: float
    examples: int


@dataclass(slots=True)
class _Samples:
    """Sums as in `GradientSquares` over steps of a round; squares are scalars on the device."""

    count: int = 0
    smalls: int = 0
    small_square: Tensor = field(default_factory=lambda: torch.zeros(()))
    small_inverse: float = 0.0
    big_square: Tensor = field(default_factory=lambda: torch.zeros(()))
    big_inverse: float = 0.0


class Stepper:
    """Makes steps with gradients that are summed over all ranks of the job.

    `ends_round`: a replica has asked for the round to end with the last step.
    """

    def __init__(
        self,
        settings: StepSettings,
        state: TrainingState,
        crew: Crew,
        reducer: Reducer,
        optimizer: torch.optim.Optimizer,
        scaler: GradScaler | None = None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._crew = crew
        self._reducer = reducer
        self._optimizer = optimizer
        self._parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        self._scaling = LossScaling(scaler, optimizer)
        self._buffers = BufferGuard(reducer.bare_model)
        self._alone = True
        self._split: _SplitSample | None = None
        self._samples = _Samples()
        self.ends_round = False

    def begin(self, samples: bool, alone: bool) -> None:
        """Prepare for one step; `alone`: the job has no other rank to compare gradients with."""
        self._alone = alone
        self._split = None
        if samples:
            self._reducer.begin_sample(self._state.counters.step, takes_small=not alone)
        self._buffers.keep()

    def backward(self, loss: torch.Tensor, weight: float, examples: int, is_last: bool) -> None:
        """The backward pass of one micro-step; `weight` is its part in the mean over the step.

        The caller has set `Reducer.synchronises` to `is_last` before the forward pass.
        """
        self._scaling.scale(loss * weight).backward()  # type: ignore[no-untyped-call]
        is_first_of_many = self._split is None and not is_last
        if self._reducer.sample is not None and self._alone and is_first_of_many:
            square = self._reducer.square_of_gradients(self._parameters)
            self._split = _SplitSample(square, weight, examples)

    def end(self, step_examples: int, own_examples: int, place: tuple[int, int]) -> bool:
        """Commit the step and move the parameters, or throw its gradients away.

        A committed step whose summed gradient is not finite moves nothing: it is skipped, on all
        ranks of the job alike, and its examples count as taken.

        Args:
            step_examples: of all ranks.
            own_examples: those of them that this rank took.
            place: pass and position at which the next step begins if this one is committed.

        Returns:
            Whether the step was committed; the same on all ranks of the instance.

        Raises:
            DivergedError: `MOST_SKIPPED_IN_A_ROW` steps in a row were skipped.
        """
        sample = self._reducer.end_sample()
        verdict = self._crew.commit(self._reducer.used())
        committed, self.ends_round = verdict.committed, verdict.ends_round
        if committed:
            self._reducer.take_gradients_of_others(verdict.users)
        moved = committed and self._clip()
        if moved:
            if sample is not None:
                self._keep_sample(sample, step_examples, own_examples)
            self._move(step_examples)
        else:
            self._buffers.restore()
        self._scaling.update()
        self._optimizer.zero_grad()
        self._reducer.model.zero_grad()  # also what the optimizer does not move
        if committed:
            self._count(step_examples, place, moved)
        return committed

    def require_movement(self) -> None:
        """Check that training has moved the model.

        Raises:
            DivergedError: every step was skipped, so there is nothing to complete.
        """
        counters = self._state.counters
        if counters.step and counters.step == counters.skipped_steps:
            raise DivergedError(
                f"the gradient was not finite in any of {counters.step} steps: check the loss, "
                "the data and the learning rate"
            )

    @property
    def sampled_steps(self) -> int:
        """How many steps have been sampled since `take_squares` was called last."""
        return self._samples.count

    def take_squares(self) -> GradientSquares:
        """Return the squares sampled since the last call, summed over this instance's ranks.

        This is where the host reads them; without samples nothing is read or sent.
        """
        samples, self._samples = self._samples, _Samples()
        if samples.count == 0:
            return GradientSquares()
        small_square, big_square = torch.stack([samples.small_square, samples.big_square]).tolist()
        smalls, small, inverse = self._crew.sum_in_instance(
            [samples.smalls, small_square, samples.small_inverse]
        )
        return GradientSquares(
            samples.count, smalls, small, inverse, big_square, samples.big_inverse
        )

    def learning_rate(self) -> float:
        """The first parameter group's learning rate as steps take it now."""
        inputs = self._rule_inputs(self._state.counters.batch_total)
        factor = self._settings.learning_rate_rule(inputs)
        return float(self._optimizer.param_groups[0]["lr"]) * factor

    def _rule_inputs(self, batch_total: int) -> LearningRateInputs:
        """Return what the learning-rate rule may know for a step of `batch_total` examples."""
        counters, settings = self._state.counters, self._settings
        return LearningRateInputs(
            scale=batch_total / settings.initial_batch,
            gain=self._gain(batch_total),
            epochs=counters.progress_examples / settings.pass_examples,
            warmup_epochs=settings.warmup_epochs,
        )

    def _keep_sample(self, sample: SampledSquares, step_examples: int, own_examples: int) -> None:
        """Count the squares of a step that moves the model."""
        own = self._split
        if not self._alone and sample.small is not None and own_examples > 0:
            own = _SplitSample(sample.small, own_examples / step_examples, own_examples)
        if sample.big is None or (self._alone and own is None):
            return
        unscaled = self._scaling.factor(sample.big.device).square().reciprocal()
        samples = self._samples
        samples.count += 1
        samples.big_square = samples.big_square + sample.big * unscaled
        samples.big_inverse += 1 / step_examples
        if own is not None:
            samples.smalls += 1
            samples.small_square = samples.small_square + own.square * unscaled / own.weight**2
            samples.small_inverse += 1 / own.examples

    def _clip(self) -> bool:
        """Unscale the gradient, and clip it where the script wants that.

        Returns:
            Whether the gradient is finite.
        """
        self._scaling.unscale()
        most = self._settings.max_gradient_norm
        if most is None:
            return has_finite_gradients(self._parameters)
        norm = gradient_norm(self._parameters)
        if not math.isfinite(float(norm)):
            return False
        nn.utils.clip_grads_with_norm_(self._parameters, most, norm)
        return True

    def _move(self, step_examples: int) -> None:
        inputs = self._rule_inputs(self._ruled_batch(step_examples))
        with scaled_groups(self._optimizer, self._settings.learning_rate_rule, inputs):
            self._optimizer.step()

    def _count(self, step_examples: int, place: tuple[int, int], moved: bool) -> None:
        """Count a committed step; `moved`: it was not skipped."""
        batch_total, initial = self._ruled_batch(step_examples), self._settings.initial_batch
        useful_examples = step_examples * self._gain(batch_total) * initial / batch_total
        self._state.advance(useful_examples, place, initial)
        counters = self._state.counters
        if moved:
            counters.skipped_in_a_row = 0
            return
        counters.skipped_steps += 1
        counters.skipped_in_a_row += 1
        if self._crew.is_leader and _is_power_of_two(counters.skipped_steps):
            _log.warning(
                "step %d is skipped, its gradient is not finite (NaN or infinity); %d so far",
                counters.step,
                counters.skipped_steps,
            )
        if counters.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise DivergedError(
                f"the gradient was not finite in {MOST_SKIPPED_IN_A_ROW} steps in a row, to step "
                f"{counters.step}: lower the learning rate or check the data, then resume "
                "from the newest checkpoint, if one was taken before"
            )

    def _ruled_batch(self, step_examples: int) -> int:
        """Return the batch that the learning-rate rule and the gain are applied to.

        The end of a pass cuts a step short; below the initial batch there is no rule.
        """
        return max(step_examples, self._settings.initial_batch)

    def _gain(self, batch_total: int) -> float:
        """AdaScale's gain at a batch, from the noise scale that was agreed on."""
        counters, initial = self._state.counters, self._settings.initial_batch
        if batch_total <= initial or counters.gradient_square <= 0:
            return 1.0
        noise_examples = initial * counters.gradient_variance / counters.gradient_square
        return float(gain(noise_examples, initial, batch_total))


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0
