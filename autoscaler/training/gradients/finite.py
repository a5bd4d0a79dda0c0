"""Norms of gradients, and checks for NaN and infinity in gradients and weights.

One gradient that is not finite makes every weight not finite, and the next checkpoints with them.
A step whose summed gradient is not finite is therefore skipped; a loss that is not finite makes it
so. The sum is equal on all ranks of the job, so that all ranks decide alike without communication.
Ranks that hold parts of it combine their numbers: see `ShardedReducer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from autoscaler.training.gradients.parts import local_part

MOST_SKIPPED_IN_A_ROW = 20


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Return the 2-norm of all gradients as a scalar; not finite if a gradient is not.

    The scalar has 32 bits, or 64 bits if gradients have. Of sharded gradients it is the norm of
    this rank's parts.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return torch.tensor(0.0)
    norm: Tensor = torch.linalg.vector_norm(_stack_scalars(_norms(gradients)))
    return norm


def has_finite_gradients(parameters: Iterable[Tensor]) -> bool:
    """Return whether all gradients, or this rank's parts of them, are finite."""
    return math.isfinite(gradient_probe(parameters))


def gradient_probe(parameters: Iterable[Tensor]) -> float:
    """Return a number that is finite if and only if all gradients are.

    On a CPU gradients are summed, which takes a fifth of a norm's time. On a device norms are
    used. Of sharded gradients this rank's parts count.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return 0.0
    on_cpu = all(gradient.device.type == "cpu" for gradient in gradients)
    sums = (
        [gradient.sum(dtype=_accumulation_type(gradient)) for gradient in gradients]
        if on_cpu
        else None
    )
    return float(_stack_scalars(sums or _norms(gradients)).double().sum())


def divide_gradients(parameters: Iterable[Tensor], divisor: float) -> None:
    """Divide all gradients in place."""
    gradients = _gradients(parameters)
    if gradients:
        torch._foreach_div_(gradients, divisor)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, whose norm is `norm`, to at most `max_norm`, in place.

    The factor is that of `torch.nn.utils.clip_grad_norm_`, which does not take sharded gradients
    of several types.
    """
    gradients = _gradients(parameters)
    if gradients:
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, factor.to(gradients[0].device))


def non_finite_names(tensors: Iterable[tuple[str, Tensor]]) -> frozenset[str]:
    """Return the names of the floating-point tensors that hold NaN or infinity.

    All sums are read from the device at once. Finite numbers may add up to infinity, so a tensor
    with a sum that is not finite is checked element by element. Of a sharded tensor this rank's
    part is checked, without communication.
    """
    floats = [(name, local_part(tensor)) for name, tensor in tensors if tensor.is_floating_point()]
    if not floats:
        return frozenset()
    sums = _stack_scalars([tensor.sum(dtype=_accumulation_type(tensor)) for _, tensor in floats])
    are_finite = torch.isfinite(sums).tolist()
    return frozenset(
        name
        for (name, tensor), is_finite in zip(floats, are_finite, strict=True)
        if not is_finite and not bool(torch.isfinite(tensor).all())
    )


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    gradients = (parameter.grad for parameter in parameters if parameter.grad is not None)
    return [_values(local_part(gradient)) for gradient in gradients]


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def _norms(gradients: list[Tensor]) -> list[Tensor]:
    norms: list[Tensor] = []
    for dtype in (torch.float32, torch.float64):
        typed_gradients = [
            gradient for gradient in gradients if _accumulation_type(gradient) is dtype
        ]
        norms += torch._foreach_norm(typed_gradients, 2, dtype=dtype) if typed_gradients else ()
    return norms


def _stack_scalars(scalars: list[Tensor]) -> Tensor:
    device = scalars[0].device
    kind = max((scalar.dtype for scalar in scalars), key=lambda dtype: dtype.itemsize)
    return torch.stack([scalar.to(device, kind) for scalar in scalars])


def _accumulation_type(gradient: Tensor) -> torch.dtype:
    return torch.float64 if gradient.dtype == torch.float64 else torch.float32
