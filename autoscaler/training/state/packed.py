"""Tensors as one row of bytes, so that any range of it can be sent or received."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20


class Packed:
    """The bytes of `tensors`, one tensor after the other, each in C order.

    The memory is that of the tensors themselves. A tensor that is not contiguous is copied.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._parts = [_bytes_of(tensor) for tensor in tensors]
        self._begins = [0, *itertools.accumulate(part.numel() for part in self._parts)]

    def staging(self) -> Staging:
        """Return memory for one connection that reads or fills the row."""
        devices = [part.device for part in self._parts if part.device.type != "cpu"]
        return Staging(devices[0] if devices else torch.device("cpu"))

    @property
    def size_bytes(self) -> int:
        """The length of the row."""
        return self._begins[-1]

    def blocks(self) -> list[tuple[int, int]]:
        """Return ranges that cover the row, of at most `BLOCK_BYTES` each.

        A range has bytes of one large tensor, or all bytes of several small ones.
        """
        blocks: list[tuple[int, int]] = []
        begin = 0
        for end in self._begins[1:]:
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
        direct = self._direct(begin, end)
        if direct is not None:
            return direct
        buffer = staging.part(end - begin)
        staging.copy(
            (buffer[place : place + piece.numel()], piece)
            for place, piece in self._pieces(begin, end)
        )
        return _memory_of(buffer)

    def room(self, begin: int, end: int, staging: Staging) -> memoryview:
        """Return memory to receive a range to; `place` must be called once it is full."""
        direct = self._direct(begin, end)
        return _memory_of(staging.part(end - begin)) if direct is None else direct

    def place(self, begin: int, end: int, staging: Staging) -> None:
        """Take the range that was received to `room` over into the tensors."""
        if self._direct(begin, end) is not None:
            return
        buffer = staging.part(end - begin)
        staging.copy(
            (piece, buffer[place : place + piece.numel()])
            for place, piece in self._pieces(begin, end)
        )

    def _direct(self, begin: int, end: int) -> memoryview | None:
        """The memory of a range that lies in one tensor of the CPU."""
        index = bisect_right(self._begins, begin) - 1
        if end > self._begins[index + 1] or self._parts[index].device.type != "cpu":
            return None
        start = self._begins[index]
        return _memory_of(self._parts[index])[begin - start : end - start]

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """The parts of tensors in a range, each with its place in the range."""
        index = bisect_right(self._begins, begin) - 1
        at = begin
        while at < end:
            start, stop = self._begins[index], min(self._begins[index + 1], end)
            if stop > at:
                yield at - begin, self._parts[index][at - start : stop - start]
            at, index = max(at, stop), index + 1


class Staging:
    """Memory of one connection for bytes on their way between a socket and tensors.

    It is pinned where `device` is a CUDA device: copies to and from that need no other memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def part(self, size_bytes: int) -> Tensor:
        """Return the first bytes of the memory."""
        if self._buffer.numel() < size_bytes:
            pins = self._stream is not None
            self._buffer = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pins)
        return self._buffer[:size_bytes]

    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copy the second tensor of each pair to the first one; return when all is done."""
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            for target, source in pairs:
                target.copy_(source, non_blocking=self._stream is not None)
        if self._stream is not None:
            self._stream.synchronize()


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _memory_of(tensor: Tensor) -> memoryview:
    return memoryview(cast(Any, tensor.numpy()))
