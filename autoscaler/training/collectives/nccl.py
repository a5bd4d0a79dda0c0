"""Sums of gradients over NCCL that can be given up when a peer is lost.

NCCL's `wait` returns at once and raises nothing when a peer is lost. The device waits instead,
until the communicator is aborted. Whether a sum succeeded is known once the device is done.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any, Final

import torch
from torch._C._distributed_c10d import AllreduceOptions, Store

# Torch's own watchdog would end the process at a lost peer; the sums of `World` handle that.
_NO_WATCHDOG: Final = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
_NONBLOCKING_TIMEOUT: Final = "TORCH_NCCL_NONBLOCKING_TIMEOUT"


def keep_process_at_nccl_errors(environment: MutableMapping[str, str]) -> None:
    """Disable torch's NCCL watchdog. Call this before a process group is created."""
    environment.update(_NO_WATCHDOG)


class NcclGradients:
    """Sums of gradients over one NCCL communicator; see `gradient_groups.GradientGroup`."""

    blocks_host = False

    def __init__(
        self, store: Store, index: int, members: int, device: torch.device, timeout: timedelta
    ) -> None:
        from torch._C._distributed_c10d import ProcessGroupNCCL

        os.environ.setdefault(_NONBLOCKING_TIMEOUT, str(round(timeout.total_seconds())))
        options = ProcessGroupNCCL.Options()
        options.config.blocking = False  # a blocking communicator can't be aborted while it forms
        self._device = device
        self._backend: Any = ProcessGroupNCCL(store, index, members, options)
        self._backend._set_sequence_number_for_group()
        self._backend.eager_connect_single_device(device)

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Enqueue the sum of `tensor` over the members, in place; return its work."""
        return self._backend.allreduce([tensor], AllreduceOptions())

    def finish(self) -> None:
        """Wait until the device has done all enqueued work."""
        torch.cuda.synchronize(self._device)

    def error(self) -> Exception | None:
        """Return the failure so far; None without one."""
        error = self._backend.get_error()
        return None if error.name == "SUCCESS" else RuntimeError(f"NCCL reports {error.name}")

    def abort(self) -> None:
        """Abort pending sums; the device continues with the tensors' undefined content."""
        self._backend.abort()
