"""Groups that sum gradients over instances: gloo, or NCCL between GPUs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import AllreduceOptions, AllToAllOptions, Store

from autoscaler.training.collectives.nccl import NcclGradients


class GradientGroup(Protocol):
    """Interface of gradient sums over instances.

    `blocks_host`: whether the wait of a work returns only with the sum.
    """

    blocks_host: bool

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Start the sum of `tensor` over the members, in place; return its work."""
        ...

    def finish(self) -> None:
        """Wait until all sums are done or aborted."""
        ...

    def error(self) -> Exception | None:
        """Return the failure so far; None without one."""
        ...

    def abort(self) -> None:
        """Abort pending sums, from any thread."""
        ...


# Creates a world's group from its store, own index, number of members and gloo group.
FormGradients = Callable[[Store, int, int, Any], GradientGroup]


def gradients_of(device: torch.device, across: str, timeout: timedelta) -> FormGradients:
    """Return the constructor of groups for gradients on `device`; `across` applies to CUDA."""
    if device.type != "cuda" or across == "gloo":
        return lambda store, index, members, control: HostGradients(control, timeout)
    return lambda store, index, members, control: NcclGradients(
        store, index, members, device, timeout
    )


class HostGradients:
    """Sums of gradients by gloo; gradients of a GPU are copied through host memory."""

    blocks_host = True

    def __init__(self, group: Any, timeout: timedelta) -> None:
        self._group = group
        self._timeout = timeout

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Start the sum of `tensor` over the members, in place; return its work."""
        if tensor.device.type == "cpu":
            return begin_sum(self._group, tensor, self._timeout)
        return HostWork(self._group, tensor, self._timeout)

    def finish(self) -> None:
        """Return at once: each wait returns only with its sum."""

    def error(self) -> Exception | None:
        """Return None: each wait raises its own error."""
        return None

    def abort(self) -> None:
        """Do nothing: waiting threads check the world's error."""


class HostWork:
    """Sum of one GPU tensor by gloo, which starts at its first `wait`."""

    def __init__(self, group: Any, tensor: torch.Tensor, timeout: timedelta) -> None:
        self._group = group
        self._timeout = timeout
        self._tensor = tensor
        self._copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor, non_blocking=True)
        stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
        self._copy_event = stream.record_event() if stream is not None else None
        self._work: Any = None

    def is_completed(self) -> bool:
        """Return whether nothing is pending."""
        return self._work is None or bool(self._work.is_completed())

    def wait(self, timeout: timedelta) -> None:
        """Wait for the sum and enqueue its copy to the GPU.

        Raises:
            RuntimeError: the sum has failed or is not complete within `timeout`.
        """
        if self._work is None:
            if self._copy_event is not None:
                self._copy_event.synchronize()
            self._work = begin_sum(self._group, self._copy, self._timeout)
        self._work.wait(timeout)
        self._tensor.copy_(self._copy, non_blocking=True)


def begin_sum(group: Any, tensor: torch.Tensor, timeout: timedelta) -> Any:
    """Start the sum of `tensor` over a gloo group, in place; return its work."""
    options = AllreduceOptions()  # a sum by default
    options.timeout = timeout
    return group.allreduce([tensor], options)


def begin_exchange(
    group: Any, tensor: torch.Tensor, received: torch.Tensor, timeout: timedelta
) -> Any:
    """Start to send `tensor` from each member of a gloo group to each; return its work.

    `received` has one row per member, which receives that member's tensor.
    """
    options = AllToAllOptions()
    options.timeout = timeout
    sent = tensor.expand(received.shape).contiguous()
    return group.alltoall_base(received, sent, [], [], options)
