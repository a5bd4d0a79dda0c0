"""Models sharded by FSDP2's `fully_shard` over the ranks of one replica.

This is the only module that uses private names of FSDP2: its parameter groups, their order of
parameters and the memory layout of their reduce-scatters. Tests compare them with results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard

from autoscaler.training.gradients.parts import local_part

_WAY_OUT = "call fully_shard(model, mesh=replica_mesh()) on the whole model last, before session"


class ShardGroup:
    """Parameters whose gradients FSDP2 reduce-scatters together.

    `trained` are those that require gradients, in the order of the reduce-scatter.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        for member in group.fsdp_params:
            member.reset_sharded_param()  # the script may have replaced parameters since
        self._members = [
            member for member in group.fsdp_params if member.sharded_param.requires_grad
        ]

    @property
    def trained(self) -> list[DTensor]:
        """Sharded parameters that require gradients."""
        return [member.sharded_param for member in self._members]

    @property
    def padded_sizes(self) -> list[int]:
        """Elements that each trained parameter has in this rank's part of a reduce-scatter."""
        return [member.padded_sharded_param_size.numel() for member in self._members]

    @property
    def gathered(self) -> list[nn.Parameter]:
        """Whole parameters that backward passes add gradients to; empty before the first pass."""
        return [
            member._unsharded_param
            for member in self._members
            if hasattr(member, "_unsharded_param")
        ]

    @property
    def scatter(self) -> Any:
        """Implementation of the group's reduce-scatter."""
        return self._group._reduce_scatter_comm

    @scatter.setter
    def scatter(self, scatter: Any) -> None:
        self._group._reduce_scatter_comm = scatter

    def sum_gradients(self, sums: bool) -> None:
        """Make the group sum its ranks' gradients, or average them as FSDP2 does by default.

        Gloo lacks the premultiplied sum by which FSDP2 applies a factor otherwise.
        """
        self._group.gradient_divide_factor = 1.0 if sums else None
        self._group.force_sum_reduction_for_comms = sums


@dataclass(frozen=True, slots=True)
class Sharding:
    """Sharding of a model: each of `copies` copies lies on `shards` ranks.

    `mesh` has one dimension, or the copies as first and the shards as second one.
    """

    mesh: DeviceMesh
    modules: tuple[FSDPModule, ...]
    groups: tuple[ShardGroup, ...]

    @property
    def copies(self) -> int:
        """Number of copies of the model on this replica's ranks."""
        return self.mesh.size(0) if self.mesh.ndim > 1 else 1

    @property
    def shards(self) -> int:
        """Number of ranks that hold one copy."""
        return self.mesh.size(self.mesh.ndim - 1)

    def send_first_copy(self, parameters: Iterable[Tensor]) -> None:
        """Set all copies to the first one, as DistributedDataParallel does."""
        if self.copies == 1:
            return
        for parameter in parameters:
            dist.broadcast(local_part(parameter), group=self.mesh.get_group(0), group_src=0)


def is_sharded(model: nn.Module) -> bool:
    """Return whether `fully_shard` was applied to the model or a part of it."""
    return any(isinstance(module, FSDPModule) for module in model.modules())


def mesh_of(model: nn.Module) -> DeviceMesh | None:
    """Return the mesh of a model that `sharding_of` has checked; None for a plain model."""
    meshes = (
        parameter.device_mesh for parameter in model.parameters() if isinstance(parameter, DTensor)
    )
    return next(meshes, None)


def reshard(model: nn.Module) -> None:
    """Free the whole parameters that forward passes have left, so that only shards remain."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def sharding_of(model: nn.Module) -> Sharding | None:
    """Return the sharding of a model over all ranks of this replica; None for a plain model.

    Raises:
        ValueError: the model is sharded in a way that a session can't train; the message names
            the parameter and the way out.
    """
    modules = tuple(module for module in model.modules() if isinstance(module, FSDPModule))
    reshard(model)
    named = list(model.named_parameters())
    sharded = [(name, parameter) for name, parameter in named if isinstance(parameter, DTensor)]
    _require_kind(model, modules, [name for name, _ in sharded])
    if not modules:
        return None
    for name, parameter in named:
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            raise ValueError(
                f"model: {name} is not sharded while others are: {_WAY_OUT}; a single number must "
                "be a tensor of one element"
            )
    mesh = sharded[0][1].device_mesh
    for name, parameter in sharded:
        _require_layout(name, parameter, mesh)
    groups = [group for module in modules for group in _groups_of(module)]
    if any(isinstance(group.offload_policy, CPUOffloadPolicy) for group in groups):
        raise ValueError(
            "model: is sharded with a CPUOffloadPolicy, and a session trains on one device: leave "
            "offload_policy out of fully_shard"
        )
    return Sharding(mesh, modules, tuple(ShardGroup(group) for group in groups))


def _groups_of(module: FSDPModule) -> list[Any]:
    return list(module._get_fsdp_state()._fsdp_param_groups)


def _require_kind(
    model: nn.Module, modules: tuple[FSDPModule, ...], sharded_names: list[str]
) -> None:
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise ValueError(
            "model: is wrapped in FullyShardedDataParallel: use its successor, "
            "torch.distributed.fsdp.fully_shard"
        )
    if sharded_names and not modules:
        raise ValueError(
            f"model: {sharded_names[0]} is a DTensor that fully_shard has not made, as in tensor "
            f"parallelism: {_WAY_OUT}"
        )
    if modules and not sharded_names:
        raise ValueError(f"model: fully_shard has sharded none of its parameters: {_WAY_OUT}")


def _require_layout(name: str, parameter: DTensor, mesh: DeviceMesh) -> None:
    ranks, shape = dist.get_world_size(), tuple(parameter.device_mesh.shape)
    if parameter.device_mesh != mesh:
        raise ValueError(
            f"model: {name} is sharded on another mesh than the first parameter: pass one mesh to "
            "all calls of fully_shard"
        )
    kinds = tuple(type(placement) for placement in parameter.placements)
    has_known_kinds = kinds[-1:] == (Shard,) and kinds[:-1] in ((), (Replicate,))
    if not has_known_kinds or parameter.device_mesh.size() != ranks:
        raise ValueError(
            f"model: {name} is sharded on a mesh of {'x'.join(map(str, shape))} ranks, and a "
            f"session needs one over all {ranks} ranks of the replica, of shards or of copies x "
            "shards: pass mesh=replica_mesh() or mesh=replica_mesh(copies=2) to fully_shard"
        )
    if ranks > 1 and shape[-1] == 1:
        raise ValueError(
            f"model: {name} is sharded over 1 rank, in {ranks} copies: leave fully_shard out, or "
            "make fewer copies"
        )
