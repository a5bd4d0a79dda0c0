"""Sums of gradients over NCCL that can be given up while a peer is lost.

NCCL's `wait` returns at once, and raises nothing when a peer is lost: the device waits instead,
until the communicator is aborted. Whether a sum holds is known once the device's work is done.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any, Final

import torch
from torch._C._distributed_c10d import AllreduceOptions, Store

# Torch's own watchdog would end the process at a lost peer; the sums of `World` handle that.
_OWN_HANDLING: Final = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
_NONBLOCKING_TIMEOUT: Final = "TORCH_NCCL_NONBLOCKING_TIMEOUT"


def keep_process_at_nccl_errors(environment: MutableMapping[str, str]) -> None:
    """Let NCCL's errors end no process. Call it before a process group is made."""
    environment.update(_OWN_HANDLING)


class NcclGradients:
    """Sums of gradients over one NCCL communicator; see `gradients.GradientGroup`."""

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
        """Return when the device has done all that was enqueued."""
        torch.cuda.synchronize(self._device)

    def error(self) -> Exception | None:
        """What has gone wrong so far."""
        error = self._backend.get_error()
        return None if error.name == "SUCCESS" else RuntimeError(f"NCCL reports {error.name}")

    def abort(self) -> None:
        """End what is under way; the device goes on with whatever the tensors hold."""
        self._backend.abort()
