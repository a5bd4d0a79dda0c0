"""Order of examples in shards: a pure function of the pass and the position.

The shards of a pass, in random order, are assigned to logical streams, each to the shortest so
far. A stream is the sequence of its shards. Positions traverse the streams in turn: row by row,
one example of each stream that has not ended. The position alone therefore determines the offset
in every stream, and a change of membership has nothing else to transfer.

The examples of a step are sorted by stream. Ranks take contiguous shares of them, so a rank reads
some streams whole, and at most two in part. Neighbouring positions belong to streams that are far
apart in that sorting (in the order of van der Corput's sequence). Steps that do not take equally
many examples of each stream are then divided alike, and a stream stays with its rank.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.training.data.orders import Indices
from autoscaler.training.data.permutation import permuted, round_keys


@dataclass(frozen=True, slots=True)
class _Layout:
    """Streams of one pass, longest first, concatenated.

    Attributes:
        ends: ends of the shards in this sequence, by shard.
        firsts: dataset index of each shard's first example.
        stream_starts: start of each stream in this sequence.
        rows: first row of segment k, in which the k shortest streams have ended.
        positions: position in the pass at which segment k begins.
    """

    ends: Indices
    firsts: Indices
    stream_starts: Indices
    rows: Indices
    positions: Indices


class ShardOrder:
    """Order of examples in shards of known lengths, read as `streams` streams at once."""

    def __init__(self, lengths: Sequence[int], streams: int, seed: int, shuffle: bool) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._streams = min(streams, len(lengths))
        self._seed = seed
        self._shuffle = shuffle
        self._sort_ranks = _van_der_corput(self._streams)
        self._layout = lru_cache(maxsize=2)(self._new_layout)
        self.examples = int(self._lengths.sum())
        self.key = self._streams, hashlib.sha256(self._lengths.tobytes()).hexdigest()

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass, by stream."""
        layout = self._layout(pass_index)
        positions = np.arange(start, stop)
        segment = np.searchsorted(layout.positions, positions, side="right") - 1
        offset_in_segment = positions - layout.positions[segment]
        streams_left = self._streams - segment
        row = layout.rows[segment] + offset_in_segment // streams_left
        stream = offset_in_segment % streams_left
        by_stream = np.lexsort((row, self._sort_ranks[stream]))
        offset = (layout.stream_starts[stream] + row)[by_stream]
        shard = np.searchsorted(layout.ends, offset, side="right")
        shard_starts = np.concatenate(([0], layout.ends))[shard]
        indices: Indices = layout.firsts[shard] + offset - shard_starts
        return indices

    def _new_layout(self, pass_index: int) -> _Layout:
        streams = self._assigned_shards(pass_index)
        totals = np.array([self._lengths[stream].sum() for stream in streams])
        shards = np.concatenate(streams)
        shortest = totals[::-1]
        rows = np.concatenate(([0], shortest[:-1]))
        examples = (shortest - rows) * np.arange(self._streams, 0, -1)
        return _Layout(
            ends=np.cumsum(self._lengths[shards]),
            firsts=(np.cumsum(self._lengths) - self._lengths)[shards],
            stream_starts=np.cumsum(totals) - totals,
            rows=rows,
            positions=np.cumsum(examples) - examples,
        )

    def _assigned_shards(self, pass_index: int) -> list[Indices]:
        """Return the shards of each stream, the longest stream first."""
        order = np.arange(len(self._lengths))
        if self._shuffle:
            order = permuted(order, len(order), round_keys(self._seed, pass_index))
        lengths = self._lengths.tolist()
        streams: list[tuple[int, int, list[int]]]
        streams = [(0, number, []) for number in range(self._streams)]
        for shard in order.tolist():
            total, number, shards = streams[0]
            shards.append(shard)
            heapq.heapreplace(streams, (total + lengths[shard], number, shards))
        streams.sort(key=lambda stream: (-stream[0], stream[1]))
        return [np.array(shards, dtype=np.int64) for _, _, shards in streams]


def _van_der_corput(count: int) -> Indices:
    """Return the ranks of the first `count` numbers of van der Corput's sequence in base 2."""
    numbers, reversed_bits = np.arange(count), np.zeros(count, dtype=np.int64)
    for _ in range(max(count - 1, 1).bit_length()):
        reversed_bits = reversed_bits << 1 | numbers & 1
        numbers = numbers >> 1
    return np.argsort(np.argsort(reversed_bits))
