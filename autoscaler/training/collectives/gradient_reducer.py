"""Interface of the sums of a model's gradients over all ranks of a job.

Every rank's loss is weighted by its share of the step's examples beforehand. A plain sum is
therefore the mean over the step, for any sizes of shares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from autoscaler.clock import Clock
from autoscaler.training.collectives.static_graph import unused_error
from autoscaler.training.collectives.timer import Timer
from autoscaler.training.gradients.finite import gradient_norm, has_finite_gradients
from autoscaler.training.gradients.squares import SampledSquares


class SquaresOfGradients(Protocol):
    """Squared norms of gradients, preconditioned as the optimizer does it."""

    def prepare(self, step: int) -> None:
        """Prepare the squares of a sampled step, number `step` of the job."""

    def of(self, gradients: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> Tensor:
        """Return the squared norm of (parameter, gradient) pairs, as a scalar on `device`."""

    def forget(self) -> None:
        """Recompute the factors at the next sampled step."""


class GradientReducer(ABC):
    """Model whose gradients are summed over all ranks of the job when `synchronises` is set.

    Attributes:
        bare_model: the model as the script passed it.
        model: the model to call in training.
        sample: squares of the present step; None if it takes none.
        takes_small: whether the sample takes the squares of this rank's own gradient, too.
        spans_instances: whether several instances train together.
        shards: number of ranks that hold one copy of a sharded model; 0 for a plain model.
        holds_parts: whether each rank has only its part of the summed gradient, so that `big` of
            a sample adds up over the ranks of the instance.
        can_give_up: whether a step whose passes run out of memory can be given up.
        ran_out: whether the forward pass of the present micro-step ran out of memory.
        fits_none: whether a forward pass of the fewest examples ran out of memory.
    """

    model: nn.Module
    _squares: SquaresOfGradients
    shards = 0
    holds_parts = False

    def __init__(
        self,
        model: nn.Module,
        clock: Clock,
        wire_type: torch.dtype | None = None,
        has_static_graph: bool = False,
    ) -> None:
        self.bare_model = model
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._device = self._trained[0].device if self._trained else torch.device("cpu")
        self._wire_type = wire_type
        self._has_static_graph = has_static_graph
        self._waits = Timer(clock)
        self._sampling = Timer(clock)
        self.sample: SampledSquares | None = None
        self.takes_small = True
        self.spans_instances = False

    @abstractmethod
    def close(self) -> None:
        """Release the process groups, even if the script keeps the wrapped model."""

    @property
    @abstractmethod
    def synchronises(self) -> bool:
        """Whether the next forward and backward pass ends the step's sums."""

    @synchronises.setter
    @abstractmethod
    def synchronises(self, value: bool) -> None: ...

    @abstractmethod
    def end_sums(self) -> None:
        """Wait for, or make, the sums that the last backward pass has not waited for."""

    def require_synchronised(self) -> None:
        """Check that a step's backward passes have produced gradients and summed them.

        Raises:
            RuntimeError: they have not: the loss does not come from `model`.
            ValueError: no pass, or of a model in DDP not the last one, has used a parameter of a
                static graph.
        """
        if self._has_gradients():
            return
        if self._has_static_graph:
            raise unused_error(self.bare_model)
        raise RuntimeError(
            "job.step(loss): the loss is not computed from job.model, so no gradient of it is "
            "summed over the ranks: call job.model(...) in training, not the plain model"
        )

    def _has_gradients(self) -> bool:
        """Return whether the step's backward passes have produced gradients."""
        enough = all if self._has_static_graph else any
        return enough(parameter.grad is not None for parameter in self._trained)

    @abstractmethod
    def begin_step(self) -> None:
        """Reset the state of sums for a new step."""

    @abstractmethod
    def begin_micro_step(self, examples: int, least: int) -> None:
        """Prepare for the passes of `examples` examples, of which `least` can't be split."""

    @property
    def can_give_up(self) -> bool:
        """Whether a step whose passes run out of memory can be given up."""
        return False

    @property
    def ran_out(self) -> bool:
        """Whether the forward pass of the present micro-step ran out of memory."""
        return False

    @property
    def fits_none(self) -> bool:
        """Whether a forward pass of the fewest examples ran out of memory."""
        return False

    def give_up(self, loss: Tensor) -> None:
        """End the present step without this rank's gradients, after memory ran out.

        Requires `can_give_up`.
        """
        raise NotImplementedError

    @property
    def differentiated(self) -> Iterable[Tensor]:
        """Tensors to which a backward pass adds this rank's own gradients."""
        return self._trained

    def used(self) -> list[float]:
        """Return for each trained parameter 1 if a rank of this instance has used it, else 0.

        The list is empty for a static graph, in which all ranks use all parameters.
        """
        if self._has_static_graph:
            return []
        return [float(parameter.grad is not None) for parameter in self._trained]

    def take_gradients_of_others(self, users: Sequence[float]) -> None:
        """Set the gradients of parameters that only other instances have used in this step.

        The gradient is None if no rank of this instance has used the parameter. The optimizer
        would then move that parameter on the other instances only.

        Args:
            users: for each trained parameter, how many instances have used it; empty if no other
                instance takes part.
        """
        for parameter, count in zip(self._trained, users, strict=False):
            if parameter.grad is None and count > 0:
                parameter.grad = self._summed_gradient(parameter)

    @abstractmethod
    def _summed_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the summed gradient of a parameter that this instance has not used."""

    def begin_sample(self, step: int, takes_small: bool) -> None:
        """Take the squares of gradients in the next step, number `step` of the job.

        `takes_small`: whether to take the squares of this rank's own gradient, too.
        """
        self.sample, self.takes_small = SampledSquares(), takes_small
        with self._sampling.timed(self._device):
            self._squares.prepare(step)

    def square_of_pass(self, is_last: bool) -> Tensor | None:
        """Return the square of this rank's gradient of the pass that has ended, or None.

        It is called once after each backward pass of a step, before `end_sums`. None means that
        the sample takes no square of this pass.
        """
        if self.sample is None or self.takes_small or is_last:
            return None
        return self.square_of_gradients(self._trained)

    def end_sample(self) -> SampledSquares | None:
        """Return the step's squares, or None; they are final after its sums."""
        sample, self.sample = self.sample, None
        if sample is not None and sample.big is None:  # no other rank, so no hook
            sample.big = self.square_of_gradients(self._trained)
        return sample

    def square_of_gradients(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Return the squared norm of all present gradients, preconditioned, on the device."""
        present = (parameter for parameter in parameters if parameter.grad is not None)
        gradients = ((parameter, cast(Tensor, parameter.grad)) for parameter in present)
        with self._sampling.timed(self._device):
            return self._squares.of(gradients, self._device)

    def forget_factors(self) -> None:
        """Recompute the preconditioning factors at the next sampled step."""
        self._squares.forget()

    def norm(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Return the norm of the summed gradients, equal on all ranks of the job."""
        return gradient_norm(parameters)

    def are_finite(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Return whether the summed gradients are finite, equal on all ranks of the job."""
        return has_finite_gradients(parameters)

    def timed_wait(self) -> AbstractContextManager[None]:
        """Return a context whose time counts as waiting for other ranks, if the device idles."""
        return self._waits.timed(self._device)

    def take_waited_seconds(self) -> float:
        """Return the seconds that this device has waited for other ranks since the last call.

        They are those of `timed_wait` and of gradient sums after the last of its own gradients.
        """
        return self._waits.take_seconds()

    def take_sampling_seconds(self) -> float:
        """Return the seconds that this device has taken gradient squares since the last call."""
        return self._sampling.take_seconds()

    @abstractmethod
    def take_route(
        self, ranks_by_instance: Sequence[int], instance: int, has_rails: bool = False
    ) -> None:
        """Sum gradients over these instances from now on; see `routes.route`."""

    @property
    def synchronised_bytes(self) -> int:
        """Bytes that are summed over the ranks in each step, in the type of transfer.

        These are the gradients of trained parameters: frozen ones have none.
        """
        return sum(
            parameter.numel() * (self._wire_type or parameter.dtype).itemsize
            for parameter in self._trained
        )

    @property
    @abstractmethod
    def bucket_sizes(self) -> str:
        """Sizes of the buckets that are summed, equal on all ranks; empty if nothing is summed."""
