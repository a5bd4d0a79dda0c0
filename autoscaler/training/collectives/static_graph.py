"""Models whose every step uses every trained parameter: DistributedDataParallel's static graph.

Without the search for unused parameters DDP learns the graph in its first passes, and orders its
buckets by them: the same on replicas that train from the start, and another on one that joins. So
it learns here, from passes before training that use each parameter once, in the order of the
model: buckets are then equal wherever the model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# DDP counts uses in the first, notes the order in the second, and has new buckets in the third.
_PASSES: Final = 3


def settle_buckets(wrapper: DistributedDataParallel, trained: Sequence[nn.Parameter]) -> None:
    """Have DDP learn that each step uses all parameters once. All ranks of an instance call it.

    The model itself is not called. Gradients are None afterwards.
    """
    for _ in range(_PASSES):
        wrapper._pre_forward()  # type: ignore[no-untyped-call]
        total = torch.stack([(each.sum() * 0).real.float() for each in trained]).sum()
        output: torch.Tensor = wrapper._post_forward(total)  # type: ignore[no-untyped-call]
        output.backward()  # type: ignore[no-untyped-call]
    for parameter in trained:
        parameter.grad = None


def unused_error(model: nn.Module) -> ValueError:
    """Return the error of a step whose last backward pass has left a parameter of `model` out."""
    named = model.named_parameters()
    unused = [name for name, each in named if each.requires_grad and each.grad is None]
    names = f", and {', '.join(unused[:3])} had no part in this one" if unused else ""
    return ValueError(
        "static_graph=True: the loss of the last batch of each step must come from job.model and "
        f"every parameter that requires a gradient{names}: leave static_graph out, or set "
        "requires_grad=False for what is never trained"
    )
