"""Ranks of one instance: their process groups, and values sent by the leader.

Numbers that determine decisions are CPU tensors over gloo, even between GPUs. That takes no device
time, and raises an error when a rank is lost. The default group is used for gradients and other
GPU tensors.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from datetime import timedelta
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from autoscaler.domain.training import SHARD_VARIABLE, SOCKET_VARIABLE
from autoscaler.training.collectives.nccl import keep_process_at_nccl_errors

_CPU: Final = torch.device("cpu")
_EVALUATION_TIMEOUT: Final = timedelta(days=365)
_BACKENDS: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class InstanceRanks:
    """Ranks of this instance, seen from one of them; the leader is rank 0.

    Args:
        control: group that sums and broadcasts CPU tensors; None without any group.
        owns_group: whether to destroy the default group at the end; False if the script made it.
    """

    def __init__(self, control: dist.ProcessGroup | None = None, owns_group: bool = False) -> None:
        self._control = control
        self._owns_group = owns_group
        self.ranks = dist.get_world_size() if control is not None else 1
        self.rank = dist.get_rank() if control is not None else 0

    @property
    def is_leader(self) -> bool:
        """Whether this rank represents the instance."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sums of the ranks' numbers."""
        if self.ranks == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, group=self._control)
        return list(tensor.tolist())

    def from_leader(self, values: list[float]) -> list[float]:
        """Return the leader's numbers; every rank must pass as many."""
        if self.ranks == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self._control)
        return list(tensor.tolist())

    def value_from_leader(self, value: Any) -> Any:
        """Return the leader's value, which is pickled."""
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
        """Set a contiguous tensor to the leader's, over the group for its device type."""
        on_host = tensor.device.type == "cpu"
        dist.broadcast(tensor, src=0, group=self._control if on_host else None)

    def barrier(self) -> None:
        """Wait for the other ranks.

        Raises:
            RuntimeError: a rank is lost.
        """
        self.sum([0.0])

    def close(self) -> None:
        """Destroy the groups that this object created."""
        if self._owns_group:
            self._control = None  # a gloo group that exists at interpreter exit aborts the process
            dist.destroy_process_group()
        elif self._control is not None and self._control is not dist.group.WORLD:
            with contextlib.suppress(ValueError):  # the script has ended all groups
                dist.destroy_process_group(self._control)
            self._control = None


def join_instance(device: torch.device, under_castor: bool) -> InstanceRanks:
    """Create the process groups of the ranks of this instance, or of this rank alone."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return InstanceRanks(_control_group_for(dist.group.WORLD))
    if not under_castor and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return InstanceRanks()
    create_default_group(device.type, under_castor)
    return InstanceRanks(dist.group.WORLD, owns_group=True)


def replica_mesh(copies: int | None = None) -> DeviceMesh:
    """Return the mesh over all ranks of this replica, for `fully_shard`.

    `copies` is the number of copies of the model on these ranks. By default there is one for each
    N ranks if the job file has `parallelism: {shard: N}`, else one. The mesh has one dimension;
    with more than one copy it has two: copies x shards.

    The process group of the ranks is created as a session would create it, unless the script has
    created one. It lasts until the process ends, so that the model can be used after the session.

    Raises:
        ValueError: the number of ranks is no multiple of `copies`, or of N.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not dist.is_initialized():
        create_default_group(device.type, under_castor=SOCKET_VARIABLE in os.environ)
        atexit.register(_end_default_group)
    ranks = dist.get_world_size()
    copies = _copies_of_job(ranks) if copies is None else copies
    if copies < 1 or ranks % copies:
        raise ValueError(f"replica_mesh(copies={copies}): the replica has {ranks} ranks")
    if copies == 1:
        return init_device_mesh(device.type, (ranks,), mesh_dim_names=("shard",))
    shape = copies, ranks // copies
    return init_device_mesh(device.type, shape, mesh_dim_names=("copy", "shard"))


def _copies_of_job(ranks: int) -> int:
    """Return the copies of the model on `ranks` ranks by the job file; 1 if it has no shard.

    Raises:
        ValueError: no number of whole copies is on these ranks.
    """
    shard = int(os.environ.get(SHARD_VARIABLE, ranks))
    if ranks % shard:
        raise ValueError(
            f"replica_mesh(): the replica has {ranks} ranks, no multiple of parallelism.shard "
            f"{shard} in the job file: use instances whose devices form whole copies"
        )
    return ranks // shard


def create_default_group(device_type: str, under_castor: bool) -> None:
    """Create the default process group of this replica's ranks, or of this rank alone."""
    backend = _BACKENDS.get(device_type, "gloo")
    if under_castor:
        keep_process_at_nccl_errors(os.environ)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    _allow_long_evaluations(dist.group.WORLD)


def _end_default_group() -> None:
    """Destroy all groups; a gloo group that exists at interpreter exit aborts the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _allow_long_evaluations(group: Any) -> None:
    """Set an unlimited timeout for CPU tensors of `group`, as a rank may evaluate for any time.

    A rank that is lost closes its connections, which all other ranks notice.
    """
    group._get_backend(_CPU)._set_default_timeout(_EVALUATION_TIMEOUT)


def _control_group_for(group: Any) -> dist.ProcessGroup:
    """Return the script's group if it takes CPU tensors, else a gloo group of its ranks."""
    if _CPU in group._device_types:
        return cast(dist.ProcessGroup, group)
    gloo_group = dist.new_group(backend="gloo")
    assert isinstance(gloo_group, dist.ProcessGroup)
    return gloo_group
