"""Where gradients lie in the flat buffers that DistributedDataParallel makes of them.

A bucket's own list of gradients has the shapes of its parameters but not their strides. Where a
parameter does not lie row by row (`channels_last`), its elements are in another order there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter's part of a bucket's buffer."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def layout_of(parameters: Sequence[Tensor]) -> tuple[Place, ...]:
    """Return where each parameter's gradient lies in the buffer of a bucket of all of them."""
    offsets = accumulate((parameter.numel() for parameter in parameters), initial=0)
    return tuple(
        Place(tuple(parameter.shape), _strides(parameter), offset)
        for parameter, offset in zip(parameters, offsets, strict=False)
    )


def placed(buffer: Tensor, layout: Iterable[Place]) -> Iterator[Tensor]:
    """Yield the part of `buffer` at each place, with the shape and strides of its parameter."""
    begin = int(buffer.storage_offset())
    for place in layout:
        yield buffer.as_strided(place.size, place.strides, begin + place.offset)


def _strides(parameter: Tensor) -> tuple[int, ...]:
    """Return the parameter's strides, or those of row by row where it has gaps."""
    expected = 1
    by_stride = zip(parameter.stride(), parameter.shape, strict=True)
    for stride, size in sorted(pair for pair in by_stride if pair[1] != 1):
        if stride != expected:
            return tuple(parameter.new_empty(parameter.shape, device="meta").stride())
        expected *= size
    return tuple(parameter.stride())
