"""A process group of instances, of torch alone, that can be given up when a peer is lost."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    PrefixStore,
    ProcessGroupGloo,
    Store,
    TCPStore,
)

from autoscaler.domain.roster import Order


class World:
    """The members that an order names, as one process group.

    Raises:
        RuntimeError: at its forming, if one of them does not come.
    """

    def __init__(self, order: Order, index: int, device: torch.device, timeout: timedelta) -> None:
        host, _, port = order.store.rpartition(":")
        store = TCPStore(host, int(port), wait_for_workers=False, timeout=timeout)
        form = _form_nccl if device.type == "cuda" else _form_gloo
        own = PrefixStore(order.origin, store)
        self._group: Any = form(own, index, len(order.members), timeout)

    def all_reduce(self, tensor: torch.Tensor, timeout_seconds: float | None) -> None:
        """Sum `tensor` over the members, in place.

        Raises:
            RuntimeError: one does not answer.
        """
        options = AllreduceOptions()  # a sum, unless it is told otherwise
        if timeout_seconds is not None:
            options.timeout = timedelta(seconds=timeout_seconds)
        self._group.allreduce([tensor], options).wait()

    def abandon(self) -> None:
        """Close its connections, so that a peer that waits for us need not wait for its timeout.

        To abort is not enough: gloo closes them when nobody holds the group any more.
        """
        if self._group is not None:
            self._group.abort()
        self._group = None


def _form_gloo(store: Store, index: int, members: int, timeout: timedelta) -> Any:
    return ProcessGroupGloo(store, index, members, timeout)


def _form_nccl(store: Store, index: int, members: int, timeout: timedelta) -> Any:
    from torch._C._distributed_c10d import ProcessGroupNCCL

    # Errors are to be raised where we wait, not to end the process from NCCL's watchdog.
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, index, members, options)
