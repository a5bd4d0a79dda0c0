"""Sums of gradients of a model sharded by FSDP2.

FSDP2 reduce-scatters gradients over the ranks of a replica in each micro-step, so that no rank
holds a whole gradient for longer than one module's backward pass. After the last pass of a step
each rank sums its accumulated parts with the ranks of its number in the other replicas, which have
the same parts. If a replica holds several copies, the ranks of the first one do so for all. The
squares of a rank's own gradient are taken from the input of the reduce-scatters of the step's
first micro-step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _broadcast_coalesced
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from autoscaler.clock import Clock
from autoscaler.training.collectives.buffers import written_buffers
from autoscaler.training.collectives.crossing import GradientSums
from autoscaler.training.collectives.gradient_reducer import (
    GradientReducer,
)
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.sharding import ShardGroup, Sharding
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.gradients.finite import gradient_norm, gradient_probe
from autoscaler.training.gradients.parts import as_part, local_part
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.gradients.sharded_squares import PartLayout, ShardedSquares

_BUCKET_BYTES: Final = 25 << 20
# Sums between replicas that are under way at once; each takes the memory of a bucket.
_MOST_PENDING: Final = 3


class ShardedReducer(GradientReducer):
    """Model sharded over the ranks of this replica.

    Args:
        sharding: sharding of the model.
        model: the model.
        clock: clock for measured times.
        instance: ranks of this replica.
        sum_over_instances: starts a sum over the ranks with this rank's number in all replicas;
            None if this rank takes part in none.
        preconditioner: factors of gradients for their squares.
        wire_type: type in which gradients are summed between replicas; None for their own type.
        has_static_graph: whether each step uses every trained parameter.
    """

    _squares: ShardedSquares
    holds_parts = True

    def __init__(
        self,
        sharding: Sharding,
        model: nn.Module,
        clock: Clock,
        instance: InstanceRanks,
        sum_over_instances: Callable[[Tensor], PendingSum] | None,
        preconditioner: Preconditioner,
        wire_type: torch.dtype | None = None,
        has_static_graph: bool = False,
    ) -> None:
        super().__init__(model, clock, wire_type, has_static_graph)
        self.model = model
        self.shards = sharding.shards
        self._sharding = sharding
        self._instance = instance
        self._crossing = GradientSums(None, sum_over_instances, wire_type)
        layouts = [PartLayout(group.trained, group.padded_sizes) for group in sharding.groups]
        self._squares = ShardedSquares(preconditioner, layouts, instance.sum, sharding.copies)
        self._buckets = _buckets_of(self._trained, sharding.shards)
        self._sums_of_unused: dict[nn.Parameter, Tensor] = {}
        self._buffers = [buffer for _, buffer in written_buffers(model)]
        self._synchronises = True
        self._passes = 0
        self._own_square = _OwnSquare()
        self._scatters = [_Scatter(self, number) for number in range(len(sharding.groups))]
        for group, scatter in zip(sharding.groups, self._scatters, strict=True):
            scatter.attach(group)
        sharding.send_first_copy(model.parameters())

    def close(self) -> None:
        """Let FSDP2 average gradients again, as before the session."""
        for group, scatter in zip(self._sharding.groups, self._scatters, strict=True):
            scatter.detach(group)
        self._crossing.close()

    @property
    def synchronises(self) -> bool:
        """Whether the next forward and backward pass ends the step's sums."""
        return self._synchronises

    @synchronises.setter
    def synchronises(self, value: bool) -> None:
        self._synchronises = value
        if self._sharding.copies > 1:
            for module in self._sharding.modules:
                module.set_requires_all_reduce(value, recurse=False)

    def begin_step(self) -> None:
        """Reset the state of sums for a new step, and copy the leader's buffers to all ranks."""
        self._passes = 0
        self._own_square = _OwnSquare()
        self._sums_of_unused.clear()
        if self._buffers and self._instance.ranks > 1:
            group: Any = dist.group.WORLD
            _broadcast_coalesced(group, self._buffers, _BUCKET_BYTES, 0)

    def begin_micro_step(self, examples: int, least: int) -> None:
        """Do nothing: a pass that runs out of memory ends the process."""

    @property
    def differentiated(self) -> Iterable[Tensor]:
        """Tensors to which a backward pass adds this rank's own gradients."""
        return [parameter for group in self._sharding.groups for parameter in group.gathered]

    @torch.no_grad()
    def end_sums(self) -> None:
        """Sum this rank's parts of the gradients with its counterparts in the other replicas."""
        if not self.spans_instances:
            return
        pending: deque[_BucketSum] = deque()
        with self.timed_wait():
            for bucket in self._buckets:
                buffer = torch.cat([_flat_gradient(parameter) for parameter in bucket])
                if buffer.numel() == 0:
                    continue
                pending.append(_BucketSum(bucket, buffer, self._crossing.begin(buffer)))
                if len(pending) == _MOST_PENDING:
                    self._finish(pending.popleft())
            for bucket_sum in pending:
                self._finish(bucket_sum)

    def _finish(self, bucket_sum: _BucketSum) -> None:
        """Wait for a sum, and put its parts in place of this rank's gradients."""
        bucket_sum.finish()
        self._sharding.send_first_copy([bucket_sum.buffer])
        sizes = [local_part(parameter).numel() for parameter in bucket_sum.parameters]
        parts = torch.split(bucket_sum.buffer, sizes)
        for parameter, part in zip(bucket_sum.parameters, parts, strict=True):
            summed = part.view(local_part(parameter).shape)
            if parameter.grad is None:
                self._sums_of_unused[parameter] = summed.clone()
            else:
                local_part(parameter.grad).copy_(summed)

    def _summed_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        summed = self._sums_of_unused.get(parameter)
        return None if summed is None else as_part(summed, parameter)

    def square_of_pass(self, is_last: bool) -> Tensor | None:
        """Return the square of this rank's gradient of the pass that has ended, or None.

        With several ranks it is that of the first pass of the step.
        """
        is_first, self._passes = self._passes == 0, self._passes + 1
        if self.sample is None or not self.takes_small:
            return super().square_of_pass(is_last)
        if not is_first:
            return None
        if self._sharding.shards == 1:  # the other ranks are those of other replicas
            return self.square_of_gradients(self._trained)
        return self._own_square.value

    def add_input(self, number: int, values: Tensor, group: dist.ProcessGroup) -> None:
        """Take the square of the input of a reduce-scatter, the one with this number."""
        if self.sample is None or not self.takes_small or self._passes > 0:
            return

        def gather(part: Tensor) -> Tensor:
            gathered = part.new_empty(part.numel() * group.size())
            dist.all_gather_single(gathered, part, group=group)
            return gathered

        with self._sampling.timed(values.device):
            self._own_square.add(number, self._squares.of_input(number, values, gather))

    def norm(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Return the norm of the summed gradients, equal on all ranks of the job."""
        part_norm = gradient_norm(parameters)
        # An exact sum of the first copy's squares is equal in replicas with any number of copies.
        squares = [0.0] * self._instance.ranks
        squares[self._instance.rank] = float(part_norm) ** 2
        squares = self._instance.sum(squares)[: self._sharding.shards]
        return torch.tensor(
            math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan,
            dtype=part_norm.dtype,
            device=self._device,
        )

    def are_finite(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Return whether the summed gradients are finite, equal on all ranks of the job."""
        return math.isfinite(self._instance.sum([gradient_probe(parameters)])[0])

    def take_route(
        self, ranks_by_instance: Sequence[int], instance: int, has_rails: bool = False
    ) -> None:
        """Sum gradients over these replicas from now on."""
        self.spans_instances = len(ranks_by_instance) > 1
        self._crossing.take_route((1,) * len(ranks_by_instance), 0)

    @property
    def bucket_sizes(self) -> str:
        """Sizes of the reduce-scatters and of the buckets between replicas, in elements."""
        scatters = [sum(group.padded_sizes) for group in self._sharding.groups]
        buckets = [sum(parameter.numel() for parameter in bucket) for bucket in self._buckets]
        return f"{scatters} {buckets}"


@dataclass(frozen=True, slots=True)
class _BucketSum:
    """Sum of some parameters' gradients between replicas that is under way in `buffer`."""

    parameters: Sequence[nn.Parameter]
    buffer: Tensor
    finish: Callable[[], None]


class _OwnSquare:
    """Square of this rank's own gradient of one pass, added up over its reduce-scatters.

    `value` is None before the first one and if it can't be known: a layout is unknown, or one
    module had several reduce-scatters, whose inputs add up to the gradient.
    """

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._is_known = True
        self._sum: Tensor | None = None

    @property
    def value(self) -> Tensor | None:
        return self._sum if self._is_known else None

    def add(self, number: int, square: Tensor | None) -> None:
        if square is None or number in self._numbers:
            self._is_known = False
            return
        self._numbers.add(number)
        self._sum = square if self._sum is None else self._sum + square


class _Scatter(ReduceScatter):
    """Reduce-scatter of one group of parameters, which reports its input to a reducer."""

    def __init__(self, reducer: ShardedReducer, number: int) -> None:
        self._reducer: ShardedReducer | None = reducer
        self._number = number
        self._scatter: Any = None

    def attach(self, group: ShardGroup) -> None:
        """Take the place of the group's reduce-scatter."""
        self._scatter, group.scatter = group.scatter, self
        group.sum_gradients(sums=True)

    def detach(self, group: ShardGroup) -> None:
        """Restore the group's reduce-scatter."""
        if group.scatter is self:
            group.scatter = self._scatter
            group.sum_gradients(sums=False)
        self._reducer = None

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return memory for an input or output."""
        memory: Tensor = self._scatter.allocate(size, dtype=dtype, device=device)
        return memory

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Start the reduce-scatter."""
        if self._reducer is not None:
            self._reducer.add_input(self._number, input_tensor, group)
        work: dist.Work | None = self._scatter(
            output_tensor=output_tensor,
            input_tensor=input_tensor,
            group=group,
            op=op,
            async_op=async_op,
        )
        return work


def _buckets_of(parameters: Sequence[nn.Parameter], shards: int) -> list[list[nn.Parameter]]:
    """Return the parameters in buckets of one type, with about `_BUCKET_BYTES` on each rank.

    They are equal on all ranks. Counterparts in other replicas have parts of the same sizes.
    """
    buckets: list[list[nn.Parameter]] = []
    for kind in dict.fromkeys(parameter.dtype for parameter in parameters):
        buckets.append([])
        size_bytes = 0.0
        for parameter in parameters:
            if parameter.dtype is not kind:
                continue
            if size_bytes >= _BUCKET_BYTES:
                buckets.append([])
                size_bytes = 0.0
            buckets[-1].append(parameter)
            size_bytes += parameter.numel() * kind.itemsize / shards
    return buckets


def _flat_gradient(parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of the gradient, as one dimension; zeros if there is none."""
    if parameter.grad is None:
        return torch.zeros_like(local_part(parameter)).flatten()
    return local_part(parameter.grad).flatten()
