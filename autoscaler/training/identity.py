"""What identifies a replica's training: its seed, dataset, model, code and settings."""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import torch

from autoscaler.training.arguments import Script, length_of
from autoscaler.training.data.orders import Order
from autoscaler.training.state.fingerprint import Fingerprint

_HEX_DIGITS: Final = 12
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
    return Fingerprint(
        seed=float(script.seed) if script.seed < _LARGEST_EXACT else _number(str(script.seed)),
        examples=float(length_of(script.dataset)),
        parameters=float(sum(parameter.numel() for _, parameter in named)),
        shapes=_number(repr(shapes)),
        code=_number(*sorted(_digests(_sources(script)))),
        settings=_number(repr(settings)),
        buckets=_number(bucket_sizes),
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


def _sources(script: Script) -> set[Path]:
    """Return the files of the script's own that define what it has given to `session`."""
    given: list[object] = [*script.model.modules(), script.dataset, script.collate_fn]
    modules = {getattr(inspect.getmodule(type(each)), "__name__", "") for each in given}
    modules |= {getattr(given, "__module__", "") for given in (script.collate_fn, script.order)}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in {"__main__", *modules})
    installed = [Path(sysconfig.get_path(key)) for key in ("stdlib", "purelib", "platlib")]
    installed += [Path(torch.__file__).parent, Path(__file__).parents[1]]
    paths = {Path(file).resolve() for file in files if file}
    return {path for path in paths if not any(path.is_relative_to(place) for place in installed)}


def _digests(paths: Iterable[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]


def _number(*texts: str) -> float:
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return float(int(digest[:_HEX_DIGITS], 16))
