"""Steps of a session, micro-step by micro-step: batches for the script, and its losses."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autoscaler.clock import Clock
from autoscaler.domain.errors import DeviceMemoryError
from autoscaler.training.arguments import Script, require_phases_fit
from autoscaler.training.collectives.wrapping import expect_backward
from autoscaler.training.data_path import seeds_batches
from autoscaler.training.members.job_ranks import Shortage
from autoscaler.training.opening import Parts
from autoscaler.training.plan import PlannedStep, StepPlan
from autoscaler.training.steps.phases import Phase, Phases
from autoscaler.training.steps.step import Step, require_loss
from autoscaler.training.steps.streams import Stream, Use, begin_stream
from autoscaler.training.steps.weights import StepWeights

_log = logging.getLogger(__name__)

_ROUNDING_EXAMPLES = 1e-6


@dataclass(frozen=True, slots=True)
class _Progress:
    """Training progress: committed steps, and useful examples."""

    step: int
    examples: float


@dataclass(frozen=True, slots=True)
class _Awaited:
    """Micro-step whose loss is awaited.

    `share` is its fraction of the step; `examples` is its number of examples.
    """

    share: float
    is_last: bool
    examples: int


class Steps:
    """Steps of one rank.

    `committed`: whether the last step was committed, the same on all ranks of the instance.
    `limit`: examples per device for the next start, if memory ran out; otherwise None.
    """

    def __init__(self, script: Script, parts: Parts, clock: Clock) -> None:
        self._script = script
        self._parts = parts
        self._clock = clock
        batch_seed = script.seed if seeds_batches(script) else None
        self._plan = StepPlan(
            parts.sampler, parts.state, parts.replica, script.logical_ranks, batch_seed
        )
        self._step: PlannedStep | None = None
        self._awaited: _Awaited | None = None
        self._is_lost = False
        self._phases = Phases(script.optimizers)
        self._weights = StepWeights(1, 1.0)
        self._losses: list[tuple[Tensor, float]] = []
        self._began_seconds = 0.0
        self._last_interval: tuple[_Progress, _Progress] | None = None
        self._examples_at_once = 0
        self.committed = False
        self.limit: int | None = None
        parts.loader.expect(self._plan.expected)

    def mean(self, value: Tensor | float | None, weight: float | None) -> float:
        """Return the mean of the ranks' values; see `TrainingSession.mean`."""
        own_weight = self._weights.own if weight is None else weight
        if value is None or own_weight == 0:
            value, own_weight = 0.0, 0.0
        sums = self._parts.job_ranks.sum([float(value) * own_weight, own_weight])
        return sums[0] / sums[1] if sums is not None and sums[1] > 0 else math.nan

    def batches(self) -> Iterator[Any]:
        """Yield the batches of one step; call `take` for each before the next one.

        Raises:
            RuntimeError: `take` was not called.
        """
        parts = self._parts
        self._began_seconds = self._clock.monotonic()
        self._step = step = self._plan.next_step()
        self._weights = StepWeights(step.examples, parts.state.counters.weight_per_example)
        self._losses = []
        self._is_lost = False
        self._phases.begin()
        parts.stepper.begin(step.samples, alone=parts.replica.agreement.ranks == 1)
        last = len(step.own.micro_steps) - 1
        shares = zip(step.own.micro_steps, step.own.weights, strict=True)
        for number, (indices, share) in enumerate(shares):
            parts.reducer.synchronises = number == last
            self._awaited, self._last_interval = (
                _Awaited(share, number == last, len(indices)),
                None,
            )
            self._examples_at_once = len(indices)
            self._seed_stream(step.streams[number], Use.BATCH)
            batch = parts.loader.fetch(indices)
            self._seed_stream(step.streams[number], Use.PASSES)
            parts.reducer.begin_micro_step(len(indices), parts.replica.least_share)
            yield batch
            if self._has_to_step:
                raise RuntimeError(self._missing_step)
            if self._is_lost:
                return

    def take(
        self,
        loss: Tensor,
        weight: float | Tensor | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        last: bool | None = None,
    ) -> Step:
        """Learn from the last batch; `loss` is its mean loss.

        With `optimizer` the call is one phase of the batch; see `Phases.chosen` for `last`.

        Raises:
            RuntimeError: no batch was given since the last call; or the loss is not computed from
                `job.model`.
            TypeError, ValueError: `loss` or `weight` can't be used.
            DivergedError: too many steps in a row had a loss or gradient that was not finite.
            DeviceMemoryError: memory ran out with examples that can't be split.
        """
        if self._phases.are_lost and self._step is not None:
            return self._unfinished_step(self._step, is_last=True)
        if self._awaited is None or self._step is None:
            raise RuntimeError("job.step(loss): call it once for each batch of job.batches()")
        phase = self._phases.chosen(optimizer, last)
        if phase is not None:
            return self._take_phase(self._step, phase, loss, weight)
        if not self._parts.reducer.ran_out:
            require_loss(loss)
        awaited, self._awaited = self._awaited, None
        factor = self._weights.add(awaited.share, weight)
        self._is_lost = not self._fits(loss, factor, awaited.is_last)
        if self._is_lost:
            self._losses = []
            self._parts.stepper.give_up(loss, awaited.examples)
        elif factor > 0:
            self._losses.append((loss.detach(), factor))
        is_end = awaited.is_last or self._is_lost
        step = (
            self._end_step(self._step)
            if is_end
            else self._unfinished_step(self._step, is_last=False)
        )
        self._examples_at_once = 0
        return step

    @property
    def _has_to_step(self) -> bool:
        return self._awaited is not None

    @property
    def _missing_step(self) -> str:
        if not self._phases.has_begun:
            return "job.step(loss) must be called for every batch of batches()"
        return (
            "job.step(loss, optimizer=...) was called for some optimizers only: where the others "
            "do not step by this batch, call the last one with last=True"
        )

    def _take_phase(
        self, step: PlannedStep, phase: Phase, loss: Tensor, weight: float | Tensor | None
    ) -> Step:
        """Make one phase of a step; a phase has a single micro-step.

        Raises:
            TypeError, ValueError: `loss` or `weight` can't be used, or the batch can have no
                phases.
            torch.OutOfMemoryError: memory ran out. The batch can't be taken in smaller parts.
        """
        parts, awaited = self._parts, self._awaited
        assert awaited is not None, "a batch was given out"
        may_grow, micro_steps = parts.replica.limits.own.may_grow, len(step.own.micro_steps)
        require_phases_fit(self._script, may_grow, micro_steps)
        if parts.reducer.ran_out:
            raise torch.OutOfMemoryError("memory ran out in a forward pass of job.model")
        require_loss(loss)
        self._weights = StepWeights(step.examples, parts.state.counters.weight_per_example)
        factor = self._weights.add(awaited.share, weight)
        expect_backward(parts.reducer.model, loss)
        parts.stepper.backward(loss, factor, is_last=True)
        self._losses = [(loss.detach(), factor)] if factor > 0 else []
        result = self._end_step(step, phase)
        self._phases.end(phase, self.committed)
        if result.is_last:
            self._awaited, self._examples_at_once = None, 0
        return result

    def explained(self, error: BaseException) -> BaseException:
        """Return the error to end the script with: `error`, or a more precise one.

        Memory may run out between a batch and the end of its `job.step`, beyond what a step can
        recover. This kind of device then gets a `limit`. If the examples can't be split, the
        result is a `DeviceMemoryError`.
        """
        replica = self._parts.replica
        if not self._examples_at_once or not isinstance(error, torch.OutOfMemoryError):
            return error
        examples = replica.least_share if self._parts.reducer.fits_none else self._examples_at_once
        try:
            self.limit = replica.limits.learn(examples)
        except DeviceMemoryError as shortage:
            return shortage
        return error

    def _fits(self, loss: Tensor, factor: float, is_last: bool) -> bool:
        """Run the backward pass of a micro-step; return whether memory sufficed for its passes.

        Raises:
            torch.OutOfMemoryError: it did not, and the step can't be given up.
        """
        reducer = self._parts.reducer
        if reducer.ran_out:
            return False
        try:
            self._parts.stepper.backward(loss, factor, is_last)
        except torch.OutOfMemoryError:
            if not reducer.can_give_up:
                raise
            return False
        return True

    def has_passed(self, steps: int | None, examples: float | None) -> bool:
        """Return whether the last step has reached the next multiple of `steps` or `examples`.

        Raises:
            ValueError: not exactly one of both is given, or it is not above 0.
        """
        periods = [period for period in (steps, examples) if period is not None]
        if len(periods) != 1 or not periods[0] > 0:
            raise ValueError("job.every(): give either steps=... or examples=..., above 0")
        if self._last_interval is None:
            return False
        before, after = (
            progress.step if examples is None else progress.examples + _ROUNDING_EXAMPLES
            for progress in self._last_interval
        )
        return after // periods[0] > before // periods[0]

    def _seed_stream(self, stream: Stream, use: Use) -> None:
        script, step = self._script, self._parts.state.counters.step
        begin_stream(script.seed, step, stream, use, script.logical_ranks is not None)

    @property
    def _progress(self) -> _Progress:
        counters = self._parts.state.counters
        return _Progress(counters.step, counters.progress_examples)

    def _end_step(self, step: PlannedStep, phase: Phase | None = None) -> Step:
        parts = self._parts
        before = self._progress
        outcome = parts.stepper.end(step.examples, step.next_place, self._weights.unit, phase)
        self.committed = outcome.committed
        if outcome.shortage is not None:
            self._learn_limit(outcome.shortage)
        ends_batch = phase is None or phase.ends_batch or not outcome.committed
        if ends_batch:
            self._last_interval = before, self._progress
            parts.replica.count_step(
                outcome.committed,
                step.examples,
                len(step.own.micro_steps),
                self._began_seconds,
                outcome.skipped,
            )
        return Step(
            number=parts.state.counters.step,
            is_last=ends_batch,
            committed=outcome.committed and ends_batch,
            skipped=outcome.skipped,
            loss=_weighted_mean(self._losses),
            gradient_norm=outcome.gradient_norm,
            learning_rate=outcome.learning_rate,
            batch_size=step.examples,
            members=parts.replica.agreement.replicas,
        )

    def _learn_limit(self, shortage: Shortage) -> None:
        """Take fewer examples at once, as memory ran out in this instance.

        Raises:
            DeviceMemoryError: the examples can't be split.
        """
        examples = shortage.examples
        if examples:
            limit = self._parts.replica.limits.learn(examples)
            if self._parts.job_ranks.is_leader:
                _log.warning(
                    "out of memory with %d examples at once on a device: the step is taken again, "
                    "with at most %d at once from now on",
                    examples,
                    limit,
                )

    def _unfinished_step(self, step: PlannedStep, is_last: bool) -> Step:
        """Return the facts of a step before its last batch, or of a phase after a lost one."""
        parts = self._parts
        return Step(
            number=parts.state.counters.step,
            is_last=is_last,
            committed=False,
            skipped=False,
            loss=None,
            gradient_norm=None,
            learning_rate=parts.stepper.learning_rate(step.examples),
            batch_size=step.examples,
            members=parts.replica.agreement.replicas,
        )


def _weighted_mean(values: list[tuple[Tensor, float]]) -> Tensor | None:
    """Return the weighted mean of scalars without a device synchronisation; None for no values."""
    if len(values) < 2:
        return values[0][0] if values else None
    total = sum(weight for _, weight in values)
    return torch.stack([value * (weight / total) for value, weight in values]).sum()
