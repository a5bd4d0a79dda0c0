"""What identifies a replica's training: its seed, dataset, model, code and settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import metadata
from typing import Final

import torch

from autoscaler.training.arguments import Script, length_of
from autoscaler.training.data.orders import Order
from autoscaler.training.own_code import content_of, digest, own_modules, slots_of
from autoscaler.training.state.fingerprint import Fingerprint, version_number

_LARGEST_EXACT: Final = 2**53


def fingerprint_of(
    script: Script, order: Order, bucket_sizes: str = "", batches: str = ""
) -> Fingerprint:
    """Return the fingerprint of what a script has given to `session`, and of its order.

    `bucket_sizes` are those of the buckets in which gradients are summed, `batches` a hash of the
    log of batches that is repeated.
    """
    named = list(script.model.named_parameters())
    shapes = [(name, tuple(each.shape), each.requires_grad) for name, each in named]
    numbers = {id(parameter): number for number, (_, parameter) in enumerate(named)}
    settings = (
        script.batch_size,
        script.lr_rule,
        script.max_grad_norm,
        script.warmup_epochs,
        script.shuffle,
        script.drop_last,
        script.logical_ranks,
        script.scaler is not None and script.scaler.is_enabled(),
        script.across,
        script.bf16_gradients,
        script.static_graph,
        [_description(optimizer, numbers) for optimizer in script.optimizers],
        [type(scheduler).__qualname__ for scheduler in script.schedulers],
        type(order).__qualname__,
        order.key,
        batches,
    )
    own = own_modules()
    files = {own[name] for name in _modules_of(script) if name in own}
    slots = slots_of(own)
    return Fingerprint(
        seed=float(script.seed) if script.seed < _LARGEST_EXACT else _number(str(script.seed)),
        examples=float(length_of(script.dataset)),
        parameters=float(sum(parameter.numel() for _, parameter in named)),
        shapes=_number(repr(shapes)),
        code=_number(*sorted(content_of(file) for file in files)),
        settings=_number(repr(settings)),
        buckets=_number(bucket_sizes),
        castor=_version_number(_castor_version()),
        torch=_version_number(torch.__version__),
        modules=tuple(number for number, _ in slots),
        files=tuple(files for _, files in slots),
    )


def _description(
    optimizer: torch.optim.Optimizer, numbers: Mapping[int, int]
) -> tuple[str, list[list[int | None]]]:
    """Return an optimizer's kind, and the numbers of its groups' parameters in the model."""
    groups = [
        [numbers.get(id(parameter)) for parameter in group["params"]]
        for group in optimizer.param_groups
    ]
    return type(optimizer).__qualname__, groups


def _modules_of(script: Script) -> set[str]:
    """Return the names of the modules that define what the script has given to `session`."""
    kinds: list[object] = [*script.model.modules(), script.dataset, script.collate_fn]
    functions = (script.collate_fn, script.order, script.worker_init_fn, script.rehearsal)
    of_kinds = {getattr(inspect.getmodule(type(each)), "__name__", "") for each in kinds}
    return {"__main__"} | of_kinds | {getattr(each, "__module__", "") for each in functions}


def _castor_version() -> str:
    try:
        return metadata.version("castor-autoscaler")
    except metadata.PackageNotFoundError:  # used from its sources
        return "0"


def _version_number(version: str) -> float:
    """Return the number of a release; builds of one for other devices have the same number."""
    release = version.partition("+")[0]
    return version_number(release, digest(release))


def _number(*texts: str) -> float:
    return float(digest(*texts))
