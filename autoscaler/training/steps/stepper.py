"""Step on one rank: backward passes, sampled squares, commit, and optimizer steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from autoscaler.domain.errors import DivergedError
from autoscaler.goodput.efficiency import gain
from autoscaler.training.collectives.gradient_reducer import GradientReducer
from autoscaler.training.gradients.finite import (
    MOST_SKIPPED_IN_A_ROW,
    clip_gradients,
    divide_gradients,
)
from autoscaler.training.gradients.noise import GradientSquares
from autoscaler.training.gradients.squares import SampledSquares
from autoscaler.training.members.job_ranks import JobRanks, Shortage
from autoscaler.training.state.buffers import BufferGuard
from autoscaler.training.state.training_state import TrainingState
from autoscaler.training.steps.learning_rate import LearningRateInputs
from autoscaler.training.steps.phases import Phase, Undo
from autoscaler.training.steps.scaled_optimizer import ScaledOptimizer
from autoscaler.training.steps.scaling import LossScaling
from autoscaler.training.steps.weights import no_gradient, unit_gradient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of the script for steps; `pass_examples` are the examples of one pass."""

    initial_batch: int
    pass_examples: int
    warmup_epochs: float = 0.0
    max_gradient_norm: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a step.

    Attributes:
        committed: whether the step counts on all ranks.
        skipped: whether the step was committed and moved no weight.
        gradient_norm: norm before clipping, not read from the device; None without clipping.
        learning_rate: learning rate of the first optimizer's first parameter group.
        shortage: memory that ran out on a rank in the step; None if none did.
    """

    committed: bool
    skipped: bool
    gradient_norm: Tensor | None
    learning_rate: float
    shortage: Shortage | None = None


@dataclass(slots=True)
class _SplitSample:
    """Squared gradient of a part of a step, and that part's weight."""

    square: Tensor
    weight: float


@dataclass(slots=True)
class _Samples:
    """Sums as in `GradientSquares` over a round's steps; squares are scalars on the device."""

    count: int = 0
    smalls: int = 0
    small_square: Tensor = field(default_factory=lambda: torch.zeros(()))
    small_inverse: float = 0.0
    big_square: Tensor = field(default_factory=lambda: torch.zeros(()))
    big_inverse: float = 0.0


class Stepper:
    """Steps with gradients that are summed over all ranks of the job.

    `ends_round`: whether a replica has requested that the round ends with the last step.
    """

    def __init__(
        self,
        settings: StepSettings,
        state: TrainingState,
        job_ranks: JobRanks,
        reducer: GradientReducer,
        movers: Sequence[ScaledOptimizer],
        scaler: GradScaler | None = None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._job_ranks = job_ranks
        self._reducer = reducer
        self._movers = movers
        self._parameters = [parameter for mover in movers for parameter in mover.parameters]
        moved = {id(parameter) for parameter in self._parameters}
        parameters = reducer.bare_model.parameters()
        self._not_moved = [parameter for parameter in parameters if id(parameter) not in moved]
        self._scaling = LossScaling(scaler)
        self._buffers = BufferGuard(reducer.bare_model)
        self._alone = True
        self._split: _SplitSample | None = None
        self._samples = _Samples()
        self._rank_weight = 0.0
        self._norm: Tensor | None = None
        self._out_of_memory_examples = 0
        self._undo = Undo()
        self._is_finite = True
        self.ends_round = False

    def begin(self, samples: bool, alone: bool) -> None:
        """Prepare for one step; `alone`: whether the job has a single rank."""
        self._alone = alone
        self._split = None
        self._out_of_memory_examples = 0
        self._undo.forget()
        self._is_finite = True
        self.ends_round = False
        self._begin_phase()
        if samples:
            self._reducer.begin_sample(self._state.counters.step, takes_small=not alone)
        self._buffers.keep()

    def _begin_phase(self) -> None:
        self._rank_weight = 0.0
        self._norm = None
        self._reducer.begin_step()

    def backward(self, loss: torch.Tensor, weight: float, is_last: bool) -> None:
        """Run the backward pass of one micro-step; `weight` is the factor of its mean loss.

        A loss that is not finite makes its gradient NaN, so that the step is skipped. Set
        `GradientReducer.synchronises` to `is_last` before the forward pass.

        Raises:
            RuntimeError, ValueError: no gradients were summed; see
                `GradientReducer.require_synchronised`.
        """
        self._rank_weight += weight
        reducer = self._reducer
        with nullcontext() if weight > 0 else no_gradient(reducer.differentiated):
            scaled = self._scaling.scale(loss * weight)
            scaled.backward(unit_gradient(loss))  # type: ignore[no-untyped-call]
        if self._split is None:
            square = reducer.square_of_pass(is_last)
            if square is not None and weight > 0:
                self._split = _SplitSample(square, weight)
        if is_last:
            reducer.end_sums()
            reducer.require_synchronised()

    def give_up(self, loss: torch.Tensor, examples: int) -> None:
        """End the passes of the present step, after `examples` examples ran out of memory.

        `end` must follow, on this rank as on all others, and no rank commits the step.
        """
        self._out_of_memory_examples = examples
        self._reducer.give_up(loss)

    def end(
        self,
        step_examples: int,
        place: tuple[int, int],
        weight_unit: float | None = None,
        phase: Phase | None = None,
    ) -> Outcome:
        """Commit the step and move the parameters, or discard its gradients.

        A committed step is skipped if its summed gradient or a loss is not finite, or all its
        weights are 0. It is skipped on all ranks of the job: it moves nothing, and its examples
        count as taken. A step in which a rank ran out of memory is not committed.

        A phase moves the parameters of its own optimizers, and the last phase counts the step. If
        one phase is not committed, those before it are undone.

        Args:
            step_examples: examples of all ranks in the step.
            place: pass and position at which the next step begins if this one is committed.
            weight_unit: unit of the script's weights; None if the weights of all ranks add up to
                1.
            phase: the optimizers that step; None for all.

        Raises:
            DivergedError: `MOST_SKIPPED_IN_A_ROW` steps in a row were skipped.
            RuntimeError: only some replicas have weights of the script.
        """
        sample = self._reducer.end_sample()
        own_weight = None if weight_unit is None else self._rank_weight
        used = self._reducer.used()
        with nullcontext() if self._alone else self._reducer.timed_wait():
            verdict = self._job_ranks.commit(used, own_weight)
        committed = verdict.committed
        self.ends_round = self.ends_round or verdict.ends_round
        movers = self._movers if phase is None else [self._movers[index] for index in phase.places]
        ends_step = phase is None or phase.ends_batch
        is_lost = self._out_of_memory_examples > 0
        if committed and not is_lost:
            self._reducer.take_gradients_of_others(verdict.users)
        is_empty = verdict.weight <= 0
        moved = committed and not is_empty and not is_lost and self._clip(movers, verdict.weight)
        shortage = self._shortage() if committed and not moved else None
        committed = committed and shortage is None
        inputs = self._rule_inputs(self._batch_for_rules(step_examples))
        learning_rate = movers[0].learning_rate(inputs)
        if moved:
            if sample is not None:
                self._keep_sample(sample, step_examples, verdict.weight)
            if not ends_step and self._job_ranks.spans_instances:
                self._undo.keep(movers)
            for mover in movers:
                mover.move(inputs)
        else:
            self._buffers.restore()
        if not committed:
            self._undo.restore()
        self._scaling.update()
        self._clear_gradients()
        if committed and weight_unit is not None and not is_empty:
            weight_per_example = verdict.weight * weight_unit / step_examples
            self._state.counters.weight_per_example = weight_per_example
        self._is_finite = self._is_finite and (moved or is_empty)
        if committed and ends_step:
            self._count(step_examples, place, self._is_finite)
        outcome = Outcome(committed, committed and not moved, self._norm, learning_rate, shortage)
        if not ends_step:
            self._begin_phase()
        return outcome

    def _clear_gradients(self) -> None:
        for mover in self._movers:
            mover.optimizer.zero_grad()
        for parameter in self._not_moved:
            parameter.grad = None

    def _shortage(self) -> Shortage | None:
        """Return the memory shortage by which the step moves nothing; None without one."""
        shortage = self._job_ranks.shortage(self._out_of_memory_examples)
        if shortage is not None:
            self._norm = None
            self._scaling.forget()
        return shortage

    def require_movement(self) -> None:
        """Check that training has moved the model.

        Raises:
            DivergedError: every step was skipped.
        """
        counters = self._state.counters
        if counters.step and counters.step == counters.skipped_steps:
            raise DivergedError(
                "job.step(loss): the loss or its gradient was not finite in any of "
                f"{counters.step} steps: check the loss, the data and the learning rate"
            )

    @property
    def sampled_steps(self) -> int:
        """Number of steps sampled since the last call of `take_squares`."""
        return self._samples.count

    def take_squares(self) -> GradientSquares:
        """Return the squares sampled since the last call, summed over this instance's ranks.

        This reads the squares from the device; without samples nothing is read or sent.
        """
        samples, self._samples = self._samples, _Samples()
        if samples.count == 0:
            return GradientSquares()
        small_square, big_square = torch.stack([samples.small_square, samples.big_square]).tolist()
        counts_big = self._reducer.holds_parts or self._job_ranks.is_leader
        smalls, small, inverse, big = self._job_ranks.sum_in_instance(
            [samples.smalls, small_square, samples.small_inverse, big_square * counts_big]
        )
        return GradientSquares(samples.count, smalls, small, inverse, big, samples.big_inverse)

    def learning_rate(self, step_examples: int | None = None) -> float:
        """Return the learning rate of the first optimizer's first parameter group.

        The rate is that of a step of `step_examples` examples; by default, of the present batch.
        """
        batch_total = self._state.counters.batch_total
        if step_examples is not None:
            batch_total = self._batch_for_rules(step_examples)
        return self._movers[0].learning_rate(self._rule_inputs(batch_total))

    def _rule_inputs(self, batch_total: int) -> LearningRateInputs:
        """Return the inputs of learning-rate rules for a step of `batch_total` examples."""
        counters, settings = self._state.counters, self._settings
        return LearningRateInputs(
            scale=batch_total / settings.initial_batch,
            gain=self._gain(batch_total),
            epochs=counters.progress_examples / settings.pass_examples,
            warmup_epochs=settings.warmup_epochs,
        )

    def _keep_sample(self, sample: SampledSquares, step_examples: int, total: float) -> None:
        """Add the squares of a step that moves the model; `total` is the sum of all weights.

        With weights of the script, a part of a step counts as its share of the total weight in
        examples.
        """
        small_sample = self._split
        if not self._alone and sample.small is not None and self._rank_weight > 0:
            small_sample = _SplitSample(sample.small, self._rank_weight)
        if sample.big is None or (self._alone and small_sample is None):
            return
        unscaled = (self._scaling.factor(sample.big.device) * total).square().reciprocal()
        samples = self._samples
        samples.count += 1
        samples.big_square = samples.big_square + sample.big * unscaled
        samples.big_inverse += 1 / step_examples
        if small_sample is not None:
            part = small_sample.weight / total
            samples.smalls += 1
            samples.small_square = samples.small_square + small_sample.square * unscaled / part**2
            samples.small_inverse += 1 / (part * step_examples)

    def _clip(self, movers: Sequence[ScaledOptimizer], total: float) -> bool:
        """Unscale the gradient, divide it by `total`, and clip it if the script sets a maximum.

        Returns:
            Whether the gradient is finite.
        """
        parameters = self._parameters
        if movers is not self._movers:
            parameters = [parameter for mover in movers for parameter in mover.parameters]
        self._scaling.unscale(mover.optimizer for mover in movers)
        if total != 1:
            divide_gradients(parameters, total)
        max_norm = self._settings.max_gradient_norm
        if max_norm is None:
            return self._reducer.are_finite(parameters)
        self._norm = self._reducer.norm(parameters)
        if not math.isfinite(float(self._norm)):
            return False
        clip_gradients(parameters, max_norm, self._norm)
        return True

    def _count(self, step_examples: int, place: tuple[int, int], is_finite: bool) -> None:
        """Count a committed step; `is_finite`: whether its gradient was finite."""
        batch_total, initial = self._batch_for_rules(step_examples), self._settings.initial_batch
        useful_examples = step_examples * self._gain(batch_total) * initial / batch_total
        self._state.advance(useful_examples, place, initial)
        counters = self._state.counters
        if is_finite:
            counters.skipped_in_a_row = 0
            return
        counters.skipped_steps += 1
        counters.skipped_in_a_row += 1
        if self._job_ranks.is_leader and _is_power_of_two(counters.skipped_steps):
            _log.warning(
                "step %d is skipped, its loss or gradient is not finite (NaN or infinity); "
                "%d so far",
                counters.step,
                counters.skipped_steps,
            )
        if counters.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise DivergedError(
                "job.step(loss): the loss or its gradient was not finite in "
                f"{MOST_SKIPPED_IN_A_ROW} steps in a row, to step {counters.step}: lower the "
                "learning rate or check the data, then resume from the newest checkpoint, if one "
                "was taken before, by castor resume JOB --file FILE"
            )

    def _batch_for_rules(self, step_examples: int) -> int:
        """Return the batch size for learning-rate rule and gain: at least the initial batch.

        The end of a pass cuts a step short; below the initial batch there is no rule.
        """
        return max(step_examples, self._settings.initial_batch)

    def _gain(self, batch_total: int) -> float:
        """Return AdaScale's gain at a batch size, from the agreed noise scale."""
        counters, initial = self._state.counters, self._settings.initial_batch
        if batch_total <= initial or counters.gradient_square <= 0:
            return 1.0
        noise_examples = initial * counters.gradient_variance / counters.gradient_square
        return float(gain(noise_examples, initial, batch_total))


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0
