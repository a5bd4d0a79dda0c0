"""Copies of a state in host memory, made while training pauses for a checkpoint."""

from __future__ import annotations

import logging
import weakref
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

_log = logging.getLogger(__name__)

_ALIGNMENT_BYTES: Final = 256  # enough for any element, and for whole lines of a cache


class HostCopies:
    """Maker of copies in host memory, which keeps the memory of a GPU's tensors.

    A pause is then as long as the transfer: memory is allocated and locked (page-locked memory is
    several times as fast to copy to) at the first copy only. Tensors of devices other than
    `kept_device` are copied to new memory each time.
    """

    def __init__(self, kept_device: str = "cuda") -> None:
        self._kept_device = kept_device
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def copy(self, tree: Any) -> Any:
        """Return `tree` with a host copy in place of each tensor, valid until the next call."""
        leaves, structure = tree_flatten(tree)
        sizes = [_aligned_bytes(leaf) if self._is_kept(leaf) else 0 for leaf in leaves]
        if sum(sizes) > self._buffer.numel():
            self._buffer = torch.empty(0, dtype=torch.uint8)  # freed before the next is allocated
            self._buffer = _locked_memory(sum(sizes))
        begin, copies = 0, []
        for leaf, size_bytes in zip(leaves, sizes, strict=True):
            if size_bytes:
                copies.append(self._copy_to(begin, leaf))
                begin += size_bytes
            else:
                copies.append(_new_copy(leaf))
        if begin and torch.cuda.is_available():
            torch.cuda.synchronize()
        return tree_unflatten(copies, structure)

    def _is_kept(self, leaf: Any) -> bool:
        """Return whether a leaf is an ordinary tensor of the kept device, and not empty."""
        is_plain = type(leaf) in (Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
        return is_plain and leaf.device.type == self._kept_device and leaf.numel() > 0

    def _copy_to(self, begin: int, tensor: Tensor) -> Tensor:
        """Start the copy of a tensor to the buffer's bytes from `begin`; return the target."""
        part = self._buffer[begin : begin + tensor.numel() * tensor.element_size()]
        target = part.view(tensor.dtype).view(tensor.shape)
        return target.copy_(tensor.detach(), non_blocking=True)


def _aligned_bytes(tensor: Tensor) -> int:
    size_bytes = tensor.numel() * tensor.element_size()
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _locked_memory(size_bytes: int) -> Tensor:
    """Return host memory, locked where CUDA is available and the system permits it.

    PyTorch's own allocator of locked memory rounds a size up to a power of 2.
    """
    memory = torch.empty(size_bytes, dtype=torch.uint8)
    if not torch.cuda.is_available():
        return memory
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = memory.data_ptr()
    error = int(runtime.cudaHostRegister(address, size_bytes, 0))
    if error:
        _log.warning("memory for checkpoints is not locked (CUDA error %d)", error)
        return memory
    unlock = weakref.finalize(memory.untyped_storage(), runtime.cudaHostUnregister, address)
    unlock.atexit = False  # the CUDA context may be gone by then
    return memory


def _new_copy(leaf: Any) -> Any:
    return leaf.detach().to("cpu", copy=True) if isinstance(leaf, Tensor) else leaf
