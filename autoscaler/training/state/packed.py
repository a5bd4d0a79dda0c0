"""Tensors as one sequence of bytes, of which any range can be sent or received."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20


class ByteSequence:
    """Bytes of `tensors`, concatenated, each in C order.

    The memory is that of the tensors themselves. A tensor that is not contiguous is copied.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._parts = [_byte_view(tensor) for tensor in tensors]
        self._offsets = [0, *itertools.accumulate(part.numel() for part in self._parts)]

    def staging(self) -> Staging:
        """Return a staging buffer for one connection that reads or fills the sequence."""
        devices = [part.device for part in self._parts if part.device.type != "cpu"]
        return Staging(devices[0] if devices else torch.device("cpu"))

    @property
    def size_bytes(self) -> int:
        """Length of the sequence in bytes."""
        return self._offsets[-1]

    def blocks(self) -> list[tuple[int, int]]:
        """Return (begin, end) ranges that cover the sequence, of at most `BLOCK_BYTES` each.

        A range has bytes of one large tensor, or all bytes of several small ones.
        """
        blocks: list[tuple[int, int]] = []
        begin = 0
        for end in self._offsets[1:]:
            if end - begin <= BLOCK_BYTES:
                if blocks and end - blocks[-1][0] <= BLOCK_BYTES and blocks[-1][1] == begin:
                    blocks[-1] = (blocks[-1][0], end)
                elif end > begin:
                    blocks.append((begin, end))
            else:
                cuts = [*range(begin, end, BLOCK_BYTES), end]
                blocks.extend(itertools.pairwise(cuts))
            begin = end
        return blocks

    def read(self, begin: int, end: int, staging: Staging) -> memoryview:
        """Return the bytes of a range: the tensor's own memory, or a copy in `staging`."""
        direct = self._cpu_memory(begin, end)
        if direct is not None:
            return direct
        buffer = staging.part(end - begin)
        staging.copy(
            (buffer[offset : offset + piece.numel()], piece)
            for offset, piece in self._pieces(begin, end)
        )
        return _memoryview_of(buffer)

    def room(self, begin: int, end: int, staging: Staging) -> memoryview:
        """Return memory to receive a range into; call `place` once the memory is full."""
        direct = self._cpu_memory(begin, end)
        return _memoryview_of(staging.part(end - begin)) if direct is None else direct

    def place(self, begin: int, end: int, staging: Staging) -> None:
        """Copy the range that was received into the memory of `room` to the tensors."""
        if self._cpu_memory(begin, end) is not None:
            return
        buffer = staging.part(end - begin)
        staging.copy(
            (piece, buffer[offset : offset + piece.numel()])
            for offset, piece in self._pieces(begin, end)
        )

    def _cpu_memory(self, begin: int, end: int) -> memoryview | None:
        """Return the memory of a range within one CPU tensor; None for any other range."""
        index = bisect_right(self._offsets, begin) - 1
        if end > self._offsets[index + 1] or self._parts[index].device.type != "cpu":
            return None
        start = self._offsets[index]
        return _memoryview_of(self._parts[index])[begin - start : end - start]

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """Yield (offset in the range, part of a tensor) for each tensor in a range."""
        index = bisect_right(self._offsets, begin) - 1
        position = begin
        while position < end:
            start, stop = self._offsets[index], min(self._offsets[index + 1], end)
            if stop > position:
                yield position - begin, self._parts[index][position - start : stop - start]
            position, index = max(position, stop), index + 1


class Staging:
    """Buffer of one connection for bytes between a socket and tensors.

    The buffer is pinned if `device` is a CUDA device, so that copies need no other memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def part(self, size_bytes: int) -> Tensor:
        """Return the first `size_bytes` bytes of the buffer, which grows as needed."""
        if self._buffer.numel() < size_bytes:
            is_pinned = self._stream is not None
            self._buffer = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=is_pinned)
        return self._buffer[:size_bytes]

    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copy the second tensor of each pair to the first; return when all copies are done."""
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            for target, source in pairs:
                target.copy_(source, non_blocking=self._stream is not None)
        if self._stream is not None:
            self._stream.synchronize()


def _byte_view(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _memoryview_of(tensor: Tensor) -> memoryview:
    return memoryview(cast(Any, tensor.numpy()))
