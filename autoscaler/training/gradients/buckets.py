"""Layout of gradients in the flat buffers of DistributedDataParallel's buckets.

A bucket's own list of gradients has the shapes of its parameters but not their strides. A
parameter that is not stored row by row (`channels_last`) has another order of elements there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """Location of a parameter's gradient in a bucket's buffer, in elements."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def layout_of(parameters: Sequence[Tensor]) -> tuple[BufferPlace, ...]:
    """Return the location of each parameter's gradient in the buffer of their bucket."""
    offsets = accumulate((parameter.numel() for parameter in parameters), initial=0)
    return tuple(
        BufferPlace(tuple(parameter.shape), _strides(parameter), offset)
        for parameter, offset in zip(parameters, offsets, strict=False)
    )


def placed(buffer: Tensor, layout: Iterable[BufferPlace]) -> Iterator[Tensor]:
    """Yield the part of `buffer` at each location, with the parameter's shape and strides."""
    begin = int(buffer.storage_offset())
    for place in layout:
        yield buffer.as_strided(place.size, place.strides, begin + place.offset)


def _strides(parameter: Tensor) -> tuple[int, ...]:
    """Return the parameter's strides; row-major strides if its memory has gaps."""
    expected = 1
    by_stride = zip(parameter.stride(), parameter.shape, strict=True)
    for stride, size in sorted(pair for pair in by_stride if pair[1] != 1):
        if stride != expected:
            return tuple(parameter.new_empty(parameter.shape, device="meta").stride())
        expected *= size
    return tuple(parameter.stride())
