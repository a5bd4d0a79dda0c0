"""Arguments of a training script to `session`, and their validation."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autoscaler.training.collectives.sharding import is_sharded, sharding_of
from autoscaler.training.data.loader import Collate, WorkerInit
from autoscaler.training.data.orders import ChosenOrder
from autoscaler.training.data.shards import ShardedDataset
from autoscaler.training.state.several import each_of
from autoscaler.training.state.training_state import Scheduler
from autoscaler.training.steps.learning_rate import rule_named

# Calls a model with a batch and returns the loss.
Rehearsal = Callable[[nn.Module, Any], torch.Tensor]

_TRANSPORTS: Final = ("nccl", "gloo")
_SCHEDULER_METHODS: Final = ("step", "state_dict", "load_state_dict")
_INTEGER_ARGUMENTS: Final = (
    "batch_size",
    "device_batch_size",
    "num_workers",
    "prefetch_factor",
    "logical_ranks",
    "seed",
)


@dataclass(frozen=True, slots=True)
class Script:
    """Arguments of one training script; see `session`."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    dataset: Dataset[Any]
    batch_size: int
    lr_rule: str | None
    scheduler: Scheduler | Sequence[Scheduler] | None
    scaler: GradScaler | None
    collate_fn: Collate | None
    num_workers: int
    max_grad_norm: float | None
    warmup_epochs: float
    shuffle: bool
    drop_last: bool
    seed: int
    checkpoint_directory: str | None
    state: MutableMapping[str, Any] | None = None
    logical_ranks: int | None = None
    pin_memory: bool = False
    prefetch_factor: int | None = None
    worker_init_fn: WorkerInit | None = None
    order: ChosenOrder | None = None
    across: str = "nccl"
    bf16_gradients: bool = False
    batch_log: str | None = None
    static_graph: bool = False
    rehearsal: Rehearsal | None = None
    device_batch_size: int | None = None

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """All optimizers of the script."""
        return each_of(self.optimizer)

    @property
    def schedulers(self) -> tuple[Scheduler, ...]:
        """All schedulers of the script."""
        return each_of(self.scheduler)


def require_usable(script: Script) -> None:
    """Check all arguments of `session`.

    Raises:
        TypeError, ValueError: an argument can't be used; the message names it and a remedy.
    """
    _require_kinds(script)
    _require_optimizers(script.optimizers)
    _require_schedulers(script.schedulers, script.optimizers)
    sharding_of(script.model)
    _require_model(script.model, script.optimizers)
    devices = {parameter.device for parameter in script.model.parameters()}
    require_own_device(devices, os.environ.get("LOCAL_RANK"), torch.cuda.device_count())
    if script.across not in _TRANSPORTS:
        raise ValueError(f"across={script.across!r} is not known: use {' or '.join(_TRANSPORTS)}")
    if script.scaler is not None and not isinstance(script.scaler, GradScaler):
        raise TypeError(f"scaler: {type(script.scaler).__name__} is not a torch.amp.GradScaler")
    if script.lr_rule is not None:
        rule_named(script.lr_rule)
    length_of(script.dataset)
    _require_order(script)
    _require_numbers(script)


def require_own_device(
    devices: Iterable[torch.device], local_rank: str | None, visible: int
) -> None:
    """Check that a model is on the one device of its rank.

    Args:
        devices: devices of the model's parameters.
        local_rank: the rank within its instance; None outside of a multi-rank start.
        visible: number of GPUs that this process sees; a single one is the rank's own.

    Raises:
        ValueError: the model is on another device or on several.
    """
    device, *others = sorted(devices, key=str)
    if others:
        names = ", ".join(str(used_device) for used_device in (device, *others))
        raise ValueError(
            f"model: its parameters lie on several devices ({names}); each rank trains on one: "
            "move all of them with model.to(device) before session"
        )
    if device.type == "meta":
        raise ValueError(
            "model: its parameters lie on the meta device, which holds no values: "
            "call model.to_empty(device=...) and set its weights before session"
        )
    if device.type != "cuda" or local_rank is None or visible == 1:
        return
    if device.index != int(local_rank):
        raise ValueError(
            f"model: lies on {device} while this rank's device is cuda:{local_rank} (LOCAL_RANK): "
            "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) first, then model.cuda()"
        )


def require_phases_fit(script: Script, may_grow: bool, parts: int) -> None:
    """Check that a batch may have several steps, each by some of the optimizers.

    Args:
        script: the session's arguments.
        may_grow: whether the batch size may grow beyond the script's.
        parts: number of micro-steps of a batch on a rank.

    Raises:
        ValueError: it may not; the message gives the reason and a remedy.
    """
    reasons = {
        "the batch may grow, and the noise scale of several losses is not one number: leave "
        "batch.max out of the job file": may_grow,
        "logical_ranks splits a batch into parts, each of which would be a step: leave it "
        "out": script.logical_ranks is not None,
        "a GradScaler changes its factor once a batch: leave scaler out, and use bfloat16, which "
        "needs none": script.scaler is not None and script.scaler.is_enabled(),
        "static_graph=True requires that each step uses all parameters: leave it "
        "out": script.static_graph,
        f"the batch is given out in {parts} parts, as a device takes less at once: lower "
        "batch_size, raise batch.device_max in the job file, or train on more devices": parts > 1,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"job.step(loss, optimizer=...): {reason}")


def least_share(model: nn.Module) -> int:
    """Return the fewest examples that a rank may pass through `model` at once in training.

    It is 2 with BatchNorm, which raises an error for a single value, and 1 otherwise.
    """
    has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())
    return 2 if has_batch_norm else 1


def length_of(dataset: Dataset[Any]) -> int:
    """Return the number of examples of `dataset`.

    Raises:
        TypeError: the dataset has no length or indexing; the message gives an alternative.
    """
    if hasattr(dataset, "load_state_dict") and isinstance(dataset, (DataLoader, IterableDataset)):
        raise TypeError(
            f"dataset: the state of a {type(dataset).__name__} belongs to one number of ranks and "
            "workers, and an elastic job changes it: give its dataset, or a ShardedDataset "
            "(autoscaler.training.data.shards)"
        )
    if isinstance(dataset, DataLoader):
        raise TypeError(
            "dataset: give the dataset of the DataLoader, and its arguments to session, which "
            "distributes its examples over a changing number of ranks"
        )
    if not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__"):
        raise TypeError(
            f"dataset: {type(dataset).__name__} is not a dataset: give one with len() and "
            "indexing, such as a torch.utils.data.Dataset, or a ShardedDataset "
            "(autoscaler.training.data.shards)"
        )
    with suppress(TypeError):
        if not isinstance(dataset, IterableDataset):
            return len(dataset)  # type: ignore[arg-type]
    raise TypeError(
        "dataset: needs len() and indexing; an iterable dataset has no order in which each "
        "example could be taken once while ranks join and leave: use a ShardedDataset "
        "(autoscaler.training.data.shards)"
    )


def _require_kinds(script: Script) -> None:
    if not isinstance(script.model, nn.Module):
        raise TypeError(f"model: {type(script.model).__name__} is not a torch.nn.Module")
    if script.state is not None and not isinstance(script.state, MutableMapping):
        raise TypeError(f"state: {type(script.state).__name__} is not a dict of names and values")
    if script.rehearsal is not None and not callable(script.rehearsal):
        raise TypeError(
            f"rehearsal: {type(script.rehearsal).__name__} is not a function of a model and a "
            "batch that returns the loss"
        )
    for name in _INTEGER_ARGUMENTS:
        value = getattr(script, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise TypeError(f"{name}={value!r} must be a whole number, of type int")


def _require_optimizers(optimizers: Sequence[object]) -> None:
    if not optimizers:
        raise ValueError("optimizer: none is given: give one, or a list of at least one")
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"optimizer: {type(optimizer).__name__} is not a torch.optim.Optimizer"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError(
                "optimizer: LBFGS computes the loss several times a step, from a closure; a step "
                "of session has one loss: use an optimizer whose step() needs no closure"
            )


def _require_schedulers(
    schedulers: Sequence[object], optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    for scheduler in schedulers:
        if not all(hasattr(scheduler, name) for name in _SCHEDULER_METHODS):
            raise TypeError(
                f"scheduler: {type(scheduler).__name__} has not all of "
                f"{', '.join(_SCHEDULER_METHODS)}"
            )
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise TypeError(
                "scheduler: ReduceLROnPlateau needs a metric at each step, and session gives "
                "none: use a scheduler whose step() needs no argument, such as CosineAnnealingLR"
            )
        if getattr(scheduler, "optimizer", optimizers[0]) not in optimizers:
            raise ValueError(
                "scheduler: it changes the rates of another optimizer than those given"
            )
    if len({id(scheduler) for scheduler in schedulers}) < len(schedulers):
        raise ValueError("scheduler: one is given twice, and would advance by two steps at once")


def _require_model(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise ValueError(
            "model: some of its parameters have no shape yet: call it on one batch before session"
        )
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    if not trained:
        raise ValueError("model: no parameter requires a gradient, so nothing can be trained")
    owners: dict[int, str] = {}
    for number, optimizer in enumerate(optimizers):
        name = "optimizer" if len(optimizers) == 1 else f"optimizer[{number}]"
        moved = [parameter for parameter in _parameters_of(optimizer) if parameter.requires_grad]
        if not moved:
            raise ValueError(
                f"{name}: none of its parameters requires a gradient, so it would move nothing"
            )
        foreign = [parameter for parameter in moved if id(parameter) not in trained]
        if foreign:
            remedy = (
                "create the optimizer after fully_shard, which replaces parameters"
                if is_sharded(model)
                else "put all that is trained into one module"
            )
            raise ValueError(
                f"{name}: {len(foreign)} of its parameters are not the model's, so their "
                f"gradients would not be summed over the ranks: {remedy}"
            )
        _require_own_parameters(name, moved, owners)


def _require_own_parameters(
    name: str, moved: Iterable[nn.Parameter], owners: dict[int, str]
) -> None:
    """Check that no earlier optimizer moves these parameters; set `name` as owner."""
    shared = Counter(owners[id(parameter)] for parameter in moved if id(parameter) in owners)
    for owner, count in shared.items():
        raise ValueError(
            f"{name}: {count} of its parameters are also {owner}'s, and would be moved twice: "
            "give each parameter to one optimizer"
        )
    owners |= {id(parameter): name for parameter in moved}


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _require_numbers(script: Script) -> None:
    if script.batch_size < 1:
        raise ValueError(f"batch_size={script.batch_size} must be at least 1")
    if script.device_batch_size is not None and script.device_batch_size < 1:
        raise ValueError(f"device_batch_size={script.device_batch_size} must be at least 1")
    max_norm = script.max_grad_norm
    if max_norm is not None and not (max_norm > 0 and math.isfinite(max_norm)):
        raise ValueError(f"max_grad_norm={max_norm} must be above 0; leave it out to not clip")
    if script.logical_ranks is not None and not 1 <= script.logical_ranks <= script.batch_size:
        raise ValueError(
            f"logical_ranks={script.logical_ranks} must be from 1 to "
            f"batch_size={script.batch_size}: each has a share of every batch"
        )
    if script.num_workers < 0:
        raise ValueError(f"num_workers={script.num_workers} must be 0 or more")
    _require_prefetch(script.prefetch_factor, script.num_workers)
    if not (script.warmup_epochs >= 0 and math.isfinite(script.warmup_epochs)):
        raise ValueError(f"warmup_epochs={script.warmup_epochs} must be 0 or more")
    if script.seed < 0:
        raise ValueError(f"seed={script.seed} must be 0 or more")


def _require_order(script: Script) -> None:
    if script.order is None:
        return
    if not callable(script.order):
        raise TypeError(
            f"order: {type(script.order).__name__} is not callable; give a function of the number "
            "of a pass that returns the dataset indices of the pass"
        )
    if isinstance(script.dataset, ShardedDataset):
        raise ValueError(
            "order: the examples of a ShardedDataset are read in the order of their shards: leave "
            "order out, or give a dataset with indexing"
        )


def _require_prefetch(prefetch_factor: int | None, workers: int) -> None:
    if prefetch_factor is None:
        return
    if prefetch_factor < 1:
        raise ValueError(f"prefetch_factor={prefetch_factor} must be at least 1")
    if workers == 0:
        raise ValueError(
            f"prefetch_factor={prefetch_factor} needs num_workers of 1 or more: without workers "
            "nothing is fetched ahead"
        )
