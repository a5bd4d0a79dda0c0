"""Model in DistributedDataParallel whose passes may run out of memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map

Hook = Callable[[Any, GradBucket], torch.futures.Future[Any]]


class Wrapped(DistributedDataParallel):
    """Model in DDP. While `examples` is above 0, a forward pass may run out of memory.

    A pass that runs out of memory returns substitute outputs: those of the first example,
    repeated. The script then reaches `job.step`, where the step is given up.

    Attributes:
        examples: examples of the present micro-step; 0 if an error is to be raised.
        least: fewest examples that the model can take at once.
        ran_out: whether the present micro-step's pass ran out of memory.
        fits_none: whether even the fewest examples do not fit.
    """

    def __init__(
        self, model: nn.Module, state: Any, hook: Hook, has_static_graph: bool = False
    ) -> None:
        # Buckets must be equal on all replicas, including new ones. DDP rebuilds them after
        # the first step unless it searches for unused parameters.
        super().__init__(
            model,
            find_unused_parameters=not has_static_graph,
            static_graph=has_static_graph,
            gradient_as_bucket_view=True,
        )
        self.register_comm_hook(state, hook)
        self._hook = state, hook
        self._outputs: list[weakref.ref[Tensor]] = []
        self.examples = 0
        self.least = 1
        self.ran_out = False
        self.fits_none = False

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model's forward pass.

        Raises:
            torch.OutOfMemoryError: memory ran out, and no substitute outputs can be computed.
        """
        if self.examples == 0 or not torch.is_grad_enabled():
            return self._forward_pass(inputs, kwargs)
        if not self.ran_out:
            try:
                return self._record_outputs(self._forward_pass(inputs, kwargs))
            except torch.OutOfMemoryError:
                if self.examples <= self.least:
                    self.fits_none = True
                    raise
                self.ran_out = True
        # The exception, which references all tensors of the pass, is released by now.
        return self._stand_ins(inputs, kwargs)

    def begin_micro_step(self, examples: int, least: int) -> None:
        """Expect a forward pass of `examples` examples; 0 means to raise any error."""
        self._outputs.clear()
        self.examples, self.least, self.ran_out = examples, least, False

    def forget_passes(self, loss: Tensor) -> None:
        """Release the memory of the forward passes behind `loss`, though the script holds it."""
        tensors = [
            loss,
            *(output for reference in self._outputs if (output := reference()) is not None),
        ]
        for tensor in tensors:
            with suppress(RuntimeError):  # a view can't be detached in place
                tensor.detach_()
        self._outputs.clear()

    def empty_buckets(self) -> list[Tensor]:
        """Return a tensor of zeros for each bucket, in the order in which they are summed."""
        buckets = self.reducer._get_zeros_like_grad_buckets()
        return [bucket.buffer() for bucket in buckets]

    def match_used_parameters(self) -> None:
        """Take part in the sum of used parameters, which ends DDP's backward pass."""
        self._match_unused_params_allreduce()  # type: ignore[no-untyped-call]

    def begin_anew(self) -> None:
        """Recreate DDP's reducer, which an interrupted backward pass leaves within a step."""
        self._release("reducer", "logger")
        parameters, is_sparse = self._build_params_for_reducer()  # type: ignore[no-untyped-call]
        names = self._build_debug_param_to_name_mapping(parameters)  # type: ignore[no-untyped-call]
        self._ddp_init_helper(parameters, is_sparse, names, self.static_graph)  # type: ignore[no-untyped-call]
        self._comm_hooks.clear()
        self.register_comm_hook(*self._hook)
        self.require_forward_param_sync = True

    def close(self) -> None:
        """Release the process group, even if the script keeps this object."""
        self._release("reducer", "logger", "process_group")

    def _release(self, *names: str) -> None:
        for name in names:
            setattr(self, name, None)
        gc.collect()

    def _forward_pass(self, inputs: Any, kwargs: Any) -> Any:
        return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]

    def _record_outputs(self, outputs: Any) -> Any:
        leaves = tree_leaves(outputs)
        self._outputs += [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        return outputs

    def _stand_ins(self, inputs: Any, kwargs: Any) -> Any:
        """Return substitute outputs of the right shapes, computed from the fewest examples.

        Raises:
            torch.OutOfMemoryError: the batch dimension of inputs or outputs is unclear, or the
                fewest examples do not fit.
        """
        rows = next((len(leaf) for leaf in tree_leaves((inputs, kwargs)) if _has_rows(leaf)), 0)
        fewest_rows = rows * self.least // self.examples
        if fewest_rows * self.examples != rows * self.least or not 0 < fewest_rows < rows:
            raise torch.OutOfMemoryError(self._unknown_batch_message)
        inputs, kwargs = tree_map(
            lambda leaf: leaf[:fewest_rows] if _has_rows(leaf, rows) else leaf, (inputs, kwargs)
        )
        self.fits_none = True  # until the pass succeeds
        with torch.no_grad():
            outputs = self.module(*inputs, **kwargs)
        self.fits_none = False
        if not all(leaf is None or isinstance(leaf, Tensor) for leaf in tree_leaves(outputs)):
            raise torch.OutOfMemoryError(self._unknown_batch_message)
        return tree_map(
            lambda leaf: (
                leaf[:1].expand(rows, *leaf.shape[1:]) if _has_rows(leaf, fewest_rows) else leaf
            ),
            outputs,
        )

    @property
    def _unknown_batch_message(self) -> str:
        return (
            f"a forward pass of {self.examples} examples ran out of memory, and the model's "
            "inputs or outputs are no tensors with the batch as first dimension"
        )


def expect_backward(model: nn.Module, loss: Tensor) -> None:
    """Prepare DDP for a backward pass from `loss`, after any number of forward passes.

    DDP expects a backward pass from the outputs of the last forward pass alone. A step of one of
    several networks may use those of earlier passes, and none of the last.
    """
    if isinstance(model, Wrapped):
        model.reducer.prepare_for_backward([loss])


def _has_rows(leaf: Any, rows: int | None = None) -> bool:
    """Return whether `leaf` is a tensor with a first dimension, of length `rows` if given."""
    if not isinstance(leaf, Tensor) or leaf.dim() == 0:
        return False
    return rows is None or len(leaf) == rows
