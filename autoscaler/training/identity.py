"""Fingerprint of a replica's training: its seed, dataset, model, code and settings."""

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
    """Return the fingerprint of a script's arguments to `session` and of its example order.

    `bucket_sizes` describes the gradient buckets; `batches` is the digest of a replayed batch log.
    """
    named = list(script.model.named_parameters())
    shapes = [(name, tuple(parameter.shape), parameter.requires_grad) for name, parameter in named]
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
    modules = own_modules()
    files = {modules[name] for name in _modules_of(script) if name in modules}
    slots = slots_of(modules)
    return Fingerprint(
        seed=float(script.seed)
        if script.seed < _LARGEST_EXACT
        else _hash_number(str(script.seed)),
        examples=float(length_of(script.dataset)),
        parameters=float(sum(parameter.numel() for _, parameter in named)),
        shapes=_hash_number(repr(shapes)),
        code=_hash_number(*sorted(content_of(file) for file in files)),
        settings=_hash_number(repr(settings)),
        buckets=_hash_number(bucket_sizes),
        castor=_version_number(_castor_version()),
        torch=_version_number(torch.__version__),
        modules=tuple(number for number, _ in slots),
        files=tuple(files for _, files in slots),
    )


def _description(
    optimizer: torch.optim.Optimizer, numbers: Mapping[int, int]
) -> tuple[str, list[list[int | None]]]:
    """Return an optimizer's class name, and its groups as the parameters' numbers in the model."""
    groups = [
        [numbers.get(id(parameter)) for parameter in group["params"]]
        for group in optimizer.param_groups
    ]
    return type(optimizer).__qualname__, groups


def _modules_of(script: Script) -> set[str]:
    """Return the names of the Python modules that define the objects given to `session`.

    They are `__main__` and the modules of the model's parts, the dataset and the functions.
    """
    instances: list[object] = [*script.model.modules(), script.dataset, script.collate_fn]
    functions = (script.collate_fn, script.order, script.worker_init_fn, script.rehearsal)
    class_modules = {
        getattr(inspect.getmodule(type(value)), "__name__", "") for value in instances
    }
    return (
        {"__main__"}
        | class_modules
        | {getattr(function, "__module__", "") for function in functions}
    )


def _castor_version() -> str:
    try:
        return metadata.version("castor-autoscaler")
    except metadata.PackageNotFoundError:  # imported from a source tree
        return "0"


def _version_number(version: str) -> float:
    """Return the number of a release, equal for its builds for different devices."""
    release = version.partition("+")[0]
    return version_number(release, digest(release))


def _hash_number(*texts: str) -> float:
    return float(digest(*texts))
