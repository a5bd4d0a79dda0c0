"""DistributedDataParallel's static graph, for models whose every step uses every parameter.

Without the search for unused parameters DDP learns the graph in its first passes and orders its
buckets by them. The order would differ between replicas that train from the start and one that
joins. DDP therefore learns from passes before training, which use each parameter once in the
model's order. Buckets are then equal on all replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# DDP counts uses in the first pass, records the order in the second, rebuilds in the third.
_PASSES: Final = 3


def settle_buckets(wrapper: DistributedDataParallel, trained: Sequence[nn.Parameter]) -> None:
    """Make DDP learn that each step uses all parameters once.

    All ranks of an instance must call this. The model itself is not called. Gradients are None
    afterwards.
    """
    for _ in range(_PASSES):
        wrapper._pre_forward()  # type: ignore[no-untyped-call]
        total = torch.stack([(weight.sum() * 0).real.float() for weight in trained]).sum()
        output: torch.Tensor = wrapper._post_forward(total)  # type: ignore[no-untyped-call]
        output.backward()  # type: ignore[no-untyped-call]
    for parameter in trained:
        parameter.grad = None


def unused_error(model: nn.Module) -> ValueError:
    """Return the error of a step whose last backward pass left a parameter of `model` out."""
    named = model.named_parameters()
    unused = [
        name for name, parameter in named if parameter.requires_grad and parameter.grad is None
    ]
    names = f", and {', '.join(unused[:3])} had no part in this one" if unused else ""
    return ValueError(
        "static_graph=True: the loss of the last batch of each step must come from job.model and "
        f"every parameter that requires a gradient{names}: leave static_graph out, or set "
        "requires_grad=False for what is never trained"
    )
