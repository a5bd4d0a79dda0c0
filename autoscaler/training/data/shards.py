"""Datasets stored in shards, each of which is read sequentially."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

Shard = TypeVar("Shard")
Example = TypeVar("Example")

# Number of batches whose examples are cached. They may be requested again: those that a worker has
# prefetched when the batch size changes, or those of a step that is repeated.
_CACHED_BATCHES: Final = 4
_STREAMS: Final = 64


class ShardedDataset(Dataset[Example], Generic[Shard, Example]):
    """Dataset in shards that are read sequentially, such as files of records.

    Each rank reads the shards of some streams. It skips the examples of a shard before its first
    one.

    Args:
        shards: arguments of `open`, such as paths; the same on all replicas.
        open: returns the examples of a shard, always the same ones. A sequence is indexed; another
            iterable is read one by one.
        lengths: number of examples of each shard.
        examples_per_pass: number of examples in a pass if `lengths` are unknown, in equal parts
            for all shards. A shard that ends earlier starts again; the rest of a longer one is
            left out.
        streams: number of shards that are open at once over all ranks, one per stream. Use at
            least as many as ranks times workers.

    Raises:
        ValueError: an argument can't be used; the message names it.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        open: Callable[[Shard], Iterable[Example]],
        *,
        lengths: Sequence[int] | None = None,
        examples_per_pass: int | None = None,
        streams: int = _STREAMS,
    ) -> None:
        if streams < 1:
            raise ValueError(f"streams={streams} must be at least 1")
        self.lengths = _lengths(len(shards), lengths, examples_per_pass)
        self.streams = streams
        self._shards = shards
        self._open = open
        self._restarts = lengths is None
        self._ends = np.cumsum(self.lengths)
        self._reset()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Example:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return several examples; cheapest if examples of a shard are consecutive."""
        if self._process != os.getpid():  # a forked worker must not share its parent's open files
            self._reset()
        examples: dict[int, Example] = {}
        self._cached_batches.append(examples)
        for index in indices:
            examples[index] = self._example(index)
        return [examples[index] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_readers": OrderedDict(),
            "_cached_batches": deque(maxlen=_CACHED_BATCHES),
        }

    def _reset(self) -> None:
        self._process = os.getpid()
        self._readers: OrderedDict[int, _Reader[Shard, Example]] = OrderedDict()
        self._cached_batches: deque[dict[int, Example]] = deque(maxlen=_CACHED_BATCHES)

    def _example(self, index: int) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not from 0 to {len(self) - 1}")
        shard = int(np.searchsorted(self._ends, index, side="right"))
        offset = index - int(self._ends[shard] - self.lengths[shard])
        reader = self._readers.get(shard)
        if reader is None or not reader.reaches(offset):
            for batch in self._cached_batches:
                if index in batch:
                    return batch[index]
            reader = self._new_reader(shard)
        self._readers.move_to_end(shard)
        example = reader.take(offset)
        if offset + 1 == self.lengths[shard]:
            self._readers.pop(shard).close()
        return example

    def _new_reader(self, shard: int) -> _Reader[Shard, Example]:
        if shard in self._readers:
            self._readers.pop(shard).close()
        elif len(self._readers) >= self.streams:
            self._readers.popitem(last=False)[1].close()
        reader = _Reader(self._shards[shard], self._open, self._restarts)
        self._readers[shard] = reader
        return reader


class _Reader(Generic[Shard, Example]):
    """Open shard. `restarts`: whether it starts again after its last example."""

    def __init__(
        self, shard: Shard, open: Callable[[Shard], Iterable[Example]], restarts: bool
    ) -> None:
        self._shard = shard
        self._open = open
        self._restarts = restarts
        self._next_offset = 0
        self._begin()

    def reaches(self, offset: int) -> bool:
        """Return whether the example at `offset` can be read without reopening the shard."""
        return self._sequence is not None or offset >= self._next_offset

    def take(self, offset: int) -> Example:
        """Return the example at `offset`; skip those before it.

        Raises:
            ValueError: the shard has fewer examples than were declared.
        """
        if self._sequence is not None:
            return self._indexed(self._sequence, offset)
        while self._next_offset < offset:
            self._next()
        return self._next()

    def close(self) -> None:
        """Close the object that `open` returned, if it can be closed."""
        for resource in (self._examples, self._opened):
            close = getattr(resource, "close", None)
            if callable(close):
                close()

    def _begin(self) -> None:
        self._opened = self._open(self._shard)
        is_sequence = hasattr(self._opened, "__getitem__") and hasattr(self._opened, "__len__")
        self._sequence: Any = self._opened if is_sequence else None
        self._examples: Iterator[Example] = iter(()) if is_sequence else iter(self._opened)

    def _indexed(self, sequence: Sequence[Example], offset: int) -> Example:
        length = len(sequence)
        if length == 0 or (offset >= length and not self._restarts):
            raise self._length_error(length)
        return sequence[offset % length]

    def _next(self) -> Example:
        for _ in range(2):
            for example in self._examples:
                self._next_offset += 1
                return example
            if not self._restarts:
                break
            self.close()
            self._begin()
        raise self._length_error(self._next_offset)

    def _length_error(self, examples: int) -> ValueError:
        if self._restarts:
            return ValueError(f"shard {self._shard!r} has no examples")
        return ValueError(
            f"shard {self._shard!r} ends after {examples} examples, and `lengths` declares "
            "more: correct `lengths`"
        )


def _lengths(
    shards: int, lengths: Sequence[int] | None, examples_per_pass: int | None
) -> NDArray[np.int64]:
    """Return how many examples each shard contributes to a pass.

    Raises:
        ValueError: the arguments contradict each other or are out of range.
    """
    if shards == 0:
        raise ValueError("shards: there are none")
    if (lengths is None) == (examples_per_pass is None):
        raise ValueError(
            "lengths or examples_per_pass: one of them is needed; lengths where each shard's is "
            "known, so that every example is taken once a pass"
        )
    if lengths is None:
        assert examples_per_pass is not None
        if examples_per_pass < 1:
            raise ValueError(f"examples_per_pass={examples_per_pass} must be at least 1")
        return np.diff(np.arange(shards + 1) * examples_per_pass // shards)
    lengths_array = np.asarray(lengths, dtype=np.int64)
    if lengths_array.shape != (shards,):
        raise ValueError(f"lengths: {len(lengths)} of them for {shards} shards")
    if lengths_array.min() < 0 or lengths_array.sum() < 1:
        raise ValueError("lengths: none may be negative, and one must be above 0")
    return lengths_array
