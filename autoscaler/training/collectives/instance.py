"""The ranks of one instance: their process groups, and what the leader says to the others.

Numbers that decide something travel as CPU tensors over gloo, also between GPUs: that costs no
time of the device, and raises an error when a rank is lost. The default group carries gradients
and the tensors of a GPU.
"""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from autoscaler.training.collectives.nccl import keep_process_at_nccl_errors

_CPU: Final = torch.device("cpu")
_EVALUATION: Final = timedelta(days=365)
_BACKENDS: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class Instance:
    """The ranks of this instance, seen from one of them; `leader` is rank 0.

    `control` is a group that sums and broadcasts CPU tensors, None where there is no group at
    all. `owns_group`: the default group is ours to end; not if the script made it.
    """

    def __init__(self, control: dist.ProcessGroup | None = None, owns_group: bool = False) -> None:
        self._control = control
        self._owns_group = owns_group
        self.ranks = dist.get_world_size() if control is not None else 1
        self.rank = dist.get_rank() if control is not None else 0

    @property
    def is_leader(self) -> bool:
        """This rank speaks for the instance."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sums of the ranks' numbers."""
        if self.ranks == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, group=self._control)
        return list(tensor.tolist())

    def from_leader(self, values: list[float]) -> list[float]:
        """Return the leader's numbers; every rank passes as many."""
        if self.ranks == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self._control)
        return list(tensor.tolist())

    def value_from_leader(self, value: Any) -> Any:
        """Return the leader's value, which can be pickled."""
        if self.ranks == 1:
            return value
        message = [value]
        dist.broadcast_object_list(message, src=0, group=self._control)
        return message[0]

    def values(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank."""
        gathered = [value] * self.ranks
        if self.ranks > 1:
            dist.all_gather_object(gathered, value, group=self._control)
        return gathered

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Set a contiguous tensor to the leader's, over the group for its type of device."""
        on_host = tensor.device.type == "cpu"
        dist.broadcast(tensor, src=0, group=self._control if on_host else None)

    def barrier(self) -> None:
        """Wait for the other ranks.

        Raises:
            RuntimeError: a rank is lost.
        """
        self.sum([0.0])

    def close(self) -> None:
        """End the groups that are ours."""
        if self._owns_group:
            self._control = None  # who holds a gloo group at the interpreter's end aborts it
            dist.destroy_process_group()
        elif self._control is not None and self._control is not dist.group.WORLD:
            with contextlib.suppress(ValueError):  # the script has ended all groups
                dist.destroy_process_group(self._control)
            self._control = None


def join_instance(device: torch.device, under_castor: bool) -> Instance:
    """Make the process groups of the ranks of this instance, or of this rank alone."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return Instance(_control_beside(dist.group.WORLD))
    backend = _BACKENDS.get(device.type, "gloo")
    if under_castor:
        keep_process_at_nccl_errors(os.environ)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend)
    elif under_castor:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    if not dist.is_initialized():
        return Instance()
    _wait_for_evaluations(dist.group.WORLD)
    return Instance(dist.group.WORLD, owns_group=True)


def _wait_for_evaluations(group: Any) -> None:
    """Let CPU tensors of `group` wait for a rank that evaluates, however long that takes.

    A rank that is lost closes its connections, and all others notice.
    """
    group._get_backend(_CPU)._set_default_timeout(_EVALUATION)


def _control_beside(group: Any) -> dist.ProcessGroup:
    """Return the script's group if it takes CPU tensors, or a gloo group of the same ranks."""
    if _CPU in group._device_types:
        return cast(dist.ProcessGroup, group)
    made = dist.new_group(backend="gloo")
    assert isinstance(made, dist.ProcessGroup)
    return made
