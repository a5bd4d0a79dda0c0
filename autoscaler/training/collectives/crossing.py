"""Sums of gradients over all ranks of the job, concurrent with the backward pass.

Buckets are summed in the order in which the backward pass completes them, each by the collectives
of its route. Both orders are the same on all ranks. On a GPU they are queued on a
separate stream. On a CPU a thread executes them, unless a bucket takes a single sum over the
instances, which gloo's own threads execute.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BroadcastOptions,
    ReduceOptions,
    ReduceScatterOptions,
)

from autoscaler.training.collectives.routes import Collective, Leg, Scope, route, shard_length
from autoscaler.training.collectives.world import PendingSum

_JOIN_SECONDS: Final = 1.0


class GradientSums:
    """Sums of buckets over the ranks of this instance and over instances.

    Args:
        group: the instance's ranks; None for a single rank.
        sum_over_rail: starts the in-place sum of a tensor over the ranks with this rank's number
            in all instances; None if this rank has no such group.
        wire_type: type in which gradients are summed; None for their own type.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        sum_over_rail: Callable[[Tensor], PendingSum] | None,
        wire_type: torch.dtype | None = None,
    ) -> None:
        self._group: Any = group
        self._sum_over_rail = sum_over_rail
        self._wire_type = wire_type
        self._ranks = group.size() if group is not None else 1
        self._rank = group.rank() if group is not None else 0
        self.legs: tuple[Leg, ...] = ()
        self.take_route((self._ranks,), 0)

    def take_route(
        self, ranks_by_instance: Sequence[int], instance: int, has_rails: bool = False
    ) -> None:
        """Sum over these instances from now on; see `routes.route`."""
        self.legs = route(ranks_by_instance, instance, self._rank, has_rails)

    def sum(self, buffer: Tensor) -> None:
        """Sum a flat buffer over all ranks, in place.

        On a GPU the current stream waits for the sum; elsewhere the host does.

        Raises:
            RuntimeError: a rank of this instance is lost.
        """
        if self.is_rail_alone:
            self.begin(buffer)()
            return
        if not self.legs:
            return
        has_shards = any(leg.on_shard for leg in self.legs)
        shard = shard_length(buffer.numel(), self._ranks) if has_shards else 0
        wire = self._wire_tensor(buffer, shard * self._ranks if has_shards else buffer.numel())
        part = wire.new_empty(shard)
        for leg in self.legs:
            self._run_leg(leg, part if leg.on_shard else wire, wire)
        if wire is not buffer:
            buffer.copy_(wire[: buffer.numel()])

    @property
    def is_rail_alone(self) -> bool:
        """Whether a bucket takes a single sum over the instances and nothing else."""
        return [leg.scope for leg in self.legs] == [Scope.RAIL]

    def begin(self, buffer: Tensor) -> Callable[[], None]:
        """Start the single sum of a flat buffer; return a function that waits for the sum.

        Requires `is_rail_alone`.
        """
        wire = self._wire_tensor(buffer, buffer.numel())
        pending = self._rail_sum(wire)

        def finish() -> None:
            pending.wait()
            if wire is not buffer:
                buffer.copy_(wire)

        return finish

    def close(self) -> None:
        """Release the group, and destroy it unless it is that of the instance."""
        group, self._group, self.legs = self._group, None, ()
        if group is not None and group is not dist.group.WORLD:
            with suppress(ValueError):  # the script has ended all groups
                dist.destroy_process_group(group)

    def _wire_tensor(self, buffer: Tensor, length: int) -> Tensor:
        """Return the tensor to sum: the buffer, or a copy if type or length differ."""
        kind = self._wire_type or buffer.dtype
        if kind == buffer.dtype and length == buffer.numel():
            return buffer
        wire = buffer.new_zeros(length, dtype=kind)
        wire[: buffer.numel()].copy_(buffer)
        return wire

    def _run_leg(self, leg: Leg, tensor: Tensor, wire: Tensor) -> None:
        if leg.scope is Scope.RAIL:
            self._rail_sum(tensor).wait()
        else:
            self._begin_in_instance(leg.collective, tensor, wire).wait()

    def _rail_sum(self, tensor: Tensor) -> PendingSum:
        assert self._sum_over_rail is not None, "the route has a rail that was not made"
        return self._sum_over_rail(tensor)

    def _begin_in_instance(self, collective: Collective, tensor: Tensor, wire: Tensor) -> Any:
        match collective:
            case Collective.ALL_REDUCE:
                return self._group.allreduce([tensor], AllreduceOptions())
            case Collective.REDUCE:
                return self._group.reduce([tensor], ReduceOptions())  # to rank 0
            case Collective.BROADCAST:
                return self._group.broadcast([tensor], BroadcastOptions())
            case Collective.REDUCE_SCATTER:
                return self._group._reduce_scatter_base(tensor, wire, ReduceScatterOptions())
            case Collective.ALL_GATHER:
                return self._group._allgather_base(wire, tensor, AllgatherOptions())


class WorkQueue:
    """Executor of work for tensors, in order, concurrent with the current thread or stream.

    On a GPU the work is queued on another stream, by a thread if it `blocks_host`. On a CPU a
    thread executes it.
    """

    def __init__(self, device: torch.device, blocks_host: bool = False) -> None:
        self._device = device
        self._stream = _stream_on(device) if device.type == "cuda" else None
        self.has_thread = self._stream is None or blocks_host
        self._thread: threading.Thread | None = None
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def begin(self, tensor: Tensor, work: Callable[[], None]) -> torch.futures.Future[Any]:
        """Execute `work` after all work queued for `tensor`; return a future that holds `tensor`.

        The future raises any error of the work.
        """
        devices: list[int | str | torch.device] | None = None
        if self._stream is not None:
            devices = [self._device]
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)
        if not self.has_thread:
            self._carry_out(tensor, work, future)
            return future
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_tasks, name="castor-gradients", daemon=True
            )
            self._thread.start()
        self._tasks.put(lambda: self._carry_out(tensor, work, future))
        return future

    def stop(self) -> None:
        """End the thread; a thread that waits for a lost rank is left behind."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            thread.join(_JOIN_SECONDS)

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it references the group

    def _carry_out(
        self, tensor: Tensor, work: Callable[[], None], future: torch.futures.Future[Any]
    ) -> None:
        with torch.no_grad(), torch.cuda.stream(self._stream):
            try:
                work()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(tensor)


def _stream_on(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
