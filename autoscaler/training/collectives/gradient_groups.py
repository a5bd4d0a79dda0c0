"""Groups by which gradients cross instances: gloo, or NCCL between GPUs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import AllreduceOptions, AllToAllOptions, Store

from autoscaler.training.collectives.nccl import NcclGradients


class GradientGroup(Protocol):
    """How gradients cross instances. `blocks_host`: the wait of a work returns with the sum."""

    blocks_host: bool

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Begin to sum `tensor` over the members, in place; return its work."""
        ...

    def finish(self) -> None:
        """Return when all that was begun is done or aborted."""
        ...

    def error(self) -> Exception | None:
        """What has gone wrong so far."""
        ...

    def abort(self) -> None:
        """End what is under way, from any thread."""
        ...


# Makes the group of a world from its store, our index, the number of members and its gloo group.
FormGradients = Callable[[Store, int, int, Any], GradientGroup]


def gradients_of(device: torch.device, across: str, timeout: timedelta) -> FormGradients:
    """Return how gradients on `device` cross instances; `across` counts for CUDA devices."""
    if device.type != "cuda" or across == "gloo":
        return lambda store, index, members, control: HostGradients(control, timeout)
    return lambda store, index, members, control: NcclGradients(
        store, index, members, device, timeout
    )


class HostGradients:
    """Sums of gradients over gloo; those of a GPU go through the host's memory."""

    blocks_host = True

    def __init__(self, group: Any, timeout: timedelta) -> None:
        self._group = group
        self._timeout = timeout

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Begin to sum `tensor` over the members, in place; return its work."""
        if tensor.device.type == "cpu":
            return begin_sum(self._group, tensor, self._timeout)
        return HostWork(self._group, tensor, self._timeout)

    def finish(self) -> None:
        """Return at once: each wait has returned with its sum."""

    def error(self) -> Exception | None:
        """Nothing that the waits have not raised."""
        return None

    def abort(self) -> None:
        """Nothing: those who wait look at the world's error."""


class HostWork:
    """One sum of a GPU's tensor over gloo; it begins when it is waited for."""

    def __init__(self, group: Any, tensor: torch.Tensor, timeout: timedelta) -> None:
        self._group = group
        self._timeout = timeout
        self._tensor = tensor
        self._copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor, non_blocking=True)
        stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
        self._copied = stream.record_event() if stream is not None else None
        self._work: Any = None

    def is_completed(self) -> bool:
        """Whether nothing is under way."""
        return self._work is None or bool(self._work.is_completed())

    def wait(self, timeout: timedelta) -> None:
        """Enqueue the way back of the sum to the GPU once it is there.

        Raises:
            RuntimeError: it is not there within `timeout`, or never will be.
        """
        if self._work is None:
            if self._copied is not None:
                self._copied.synchronize()
            self._work = begin_sum(self._group, self._copy, self._timeout)
        self._work.wait(timeout)
        self._tensor.copy_(self._copy, non_blocking=True)


def begin_sum(group: Any, tensor: torch.Tensor, timeout: timedelta) -> Any:
    """Begin to sum `tensor` over a gloo group, in place; return its work."""
    options = AllreduceOptions()  # a sum, unless it is told otherwise
    options.timeout = timeout
    return group.allreduce([tensor], options)


def begin_exchange(
    group: Any, tensor: torch.Tensor, received: torch.Tensor, timeout: timedelta
) -> Any:
    """Begin to send `tensor` from each member of a gloo group to each; return its work.

    `received` has a row for each member, which comes to be that member's tensor.
    """
    options = AllToAllOptions()
    options.timeout = timeout
    sent = tensor.expand(received.shape).contiguous()
    return group.alltoall_base(received, sent, [], [], options)
