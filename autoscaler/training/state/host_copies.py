"""Copies of a state in host memory, made while training pauses for a checkpoint."""

from __future__ import annotations

import logging
import threading
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
    several times as fast to copy to) once, by `reserve` or else at the first copy. Tensors of
    devices other than `kept_device` are copied to new memory each time.
    """

    def __init__(self, kept_device: str = "cuda") -> None:
        self._kept_device = kept_device
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._reservation: threading.Thread | None = None

    def reserve(self, tree: Any) -> None:
        """Allocate and lock the memory for copies of `tree` in a thread, ahead of the first copy.

        Without enough memory, the first copy tries again and raises.
        """
        size_bytes = sum(self._sizes(tree_flatten(tree)[0]))
        if size_bytes > self._buffer.numel() and self._reservation is None:
            self._reservation = threading.Thread(
                target=self._allocate_if_possible,
                args=(size_bytes, _current_gpu()),
                name="castor-checkpoint-memory",
                daemon=True,
            )
            self._reservation.start()

    def copy(self, tree: Any) -> Any:
        """Return `tree` with a host copy in place of each tensor, valid until the next call."""
        if self._reservation is not None:
            self._reservation.join()
            self._reservation = None
        leaves, structure = tree_flatten(tree)
        sizes = self._sizes(leaves)
        if sum(sizes) > self._buffer.numel():
            self._allocate(sum(sizes))
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

    def _sizes(self, leaves: list[Any]) -> list[int]:
        """Return the bytes of the buffer that each leaf takes; 0 for copies in new memory."""
        return [_aligned_bytes(leaf) if self._is_kept(leaf) else 0 for leaf in leaves]

    def _allocate(self, size_bytes: int) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)  # freed before the next is allocated
        self._buffer = _locked_memory(size_bytes)

    def _allocate_if_possible(self, size_bytes: int, gpu: int | None) -> None:
        try:
            if gpu is not None:
                torch.cuda.set_device(gpu)  # a new thread would use, and so occupy, the first GPU
            self._allocate(size_bytes)
        except RuntimeError as error:
            _log.warning("no memory for checkpoints is reserved: %s", error)

    def _is_kept(self, leaf: Any) -> bool:
        """Return whether a leaf is an ordinary tensor of the kept device, and not empty."""
        is_plain = type(leaf) in (Tensor, torch.nn.Parameter) and leaf.layout is torch.strided
        return is_plain and leaf.device.type == self._kept_device and leaf.numel() > 0

    def _copy_to(self, begin: int, tensor: Tensor) -> Tensor:
        """Start the copy of a tensor to the buffer's bytes from `begin`; return the target."""
        part = self._buffer[begin : begin + tensor.numel() * tensor.element_size()]
        target = part.view(tensor.dtype).view(tensor.shape)
        return target.copy_(tensor.detach(), non_blocking=True)


def _current_gpu() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None


def _aligned_bytes(tensor: Tensor) -> int:
    size_bytes = tensor.numel() * tensor.element_size()
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _locked_memory(size_bytes: int) -> Tensor:
    """Return host memory, locked where CUDA is available and the system permits it.

    PyTorch's own allocator of locked memory rounds a size up to a power of 2.
    """
    memory = torch.empty(size_bytes, dtype=torch.uint8)
    memory.zero_()  # maps all pages here rather than in the first copy
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
