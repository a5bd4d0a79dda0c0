"""Norms of gradients, and checks for NaN and infinity in gradients and weights.

One non-finite gradient makes every weight non-finite, and the next checkpoints with them. A step
whose summed gradient is not finite is therefore skipped; a loss that is not finite makes it so.
The sum is equal on all ranks of the job, so each rank decides alone and all decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOST_SKIPPED_IN_A_ROW = 20


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the 2-norm of all gradients as a scalar; not finite if a gradient is not.

    It has 32 bits, or 64 where gradients have.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return torch.tensor(0.0)
    norm: Tensor = torch.linalg.vector_norm(_stacked(_norms(gradients)))
    return norm


def has_finite_gradients(parameters: Iterable[nn.Parameter]) -> bool:
    """Return whether no gradient holds NaN or infinity.

    A sum of finite numbers is finite, and on a CPU a sum takes a fifth of a norm's time.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return True
    on_cpu = all(gradient.device.type == "cpu" for gradient in gradients)
    sums = [gradient.sum(dtype=_summed_as(gradient)) for gradient in gradients] if on_cpu else None
    return math.isfinite(float(_stacked(sums or _norms(gradients)).double().sum()))


def divide_gradients(parameters: Iterable[nn.Parameter], divisor: float) -> None:
    """Divide all gradients, in place."""
    gradients = _gradients(parameters)
    if gradients:
        torch._foreach_div_(gradients, divisor)


def non_finite_names(tensors: Iterable[tuple[str, Tensor]]) -> frozenset[str]:
    """Return the names of the floating-point tensors that hold NaN or infinity.

    All sums are read from the device at once. Finite numbers may add up to infinity, so a tensor
    whose sum is not finite is looked at in full.
    """
    floats = [(name, each.detach()) for name, each in tensors if each.is_floating_point()]
    if not floats:
        return frozenset()
    sums = _stacked([each.sum(dtype=_summed_as(each)) for _, each in floats])
    are_finite = torch.isfinite(sums).tolist()
    return frozenset(
        name
        for (name, each), is_finite in zip(floats, are_finite, strict=True)
        if not is_finite and not bool(torch.isfinite(each).all())
    )


def _gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    gradients = (parameter.grad for parameter in parameters if parameter.grad is not None)
    return [_values(gradient) for gradient in gradients]


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def _norms(gradients: list[Tensor]) -> list[Tensor]:
    norms: list[Tensor] = []
    for kind in (torch.float32, torch.float64):
        of_kind = [gradient for gradient in gradients if _summed_as(gradient) is kind]
        norms += torch._foreach_norm(of_kind, 2, dtype=kind) if of_kind else ()
    return norms


def _stacked(scalars: list[Tensor]) -> Tensor:
    device = scalars[0].device
    kind = max((scalar.dtype for scalar in scalars), key=lambda dtype: dtype.itemsize)
    return torch.stack([scalar.to(device, kind) for scalar in scalars])


def _summed_as(gradient: Tensor) -> torch.dtype:
    return torch.float64 if gradient.dtype == torch.float64 else torch.float32
