"""Orders of a dataset's examples by pass: pure functions, the same on every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from autoscaler.training.data.permutation import permuted, round_keys

Indices = NDArray[np.int64]
ChosenOrder = Callable[[int], Sequence[int]]

# Number of indices at each end of the first pass that replicas compare.
_COMPARED_INDICES: Final = 10_000
# Permuting fewer positions takes as long, so short slices are cut from cached blocks.
_BLOCK_POSITIONS: Final = 1024


class Order(Protocol):
    """Order of the examples in each pass.

    `key`: values that must be equal on all replicas for an equal order, beside the kind of order,
    the seed and the dataset.
    """

    @property
    def examples(self) -> int:
        """Number of examples in a pass."""
        ...

    @property
    def key(self) -> object:
        """Plain values that replicas compare."""
        ...

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        ...


class Sequential:
    """Order of the dataset itself, in every pass."""

    key = None

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        return np.arange(start, stop)


class Shuffled:
    """Random order for each pass, given by a seed, computed without storing it.

    Passes before `first_keyed_pass` have the order of earlier versions, which held all indices of
    a pass. A pass that such a version began thus keeps its order.
    """

    key = None

    def __init__(
        self, examples: int, seed: int, first_keyed_pass: Callable[[], int] = lambda: 0
    ) -> None:
        self.examples = examples
        self._seed = seed
        self._first_keyed_pass = first_keyed_pass

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        if pass_index < self._first_keyed_pass():
            return _whole_order(self.examples, self._seed, pass_index)[start:stop]
        if stop - start >= _BLOCK_POSITIONS:
            return _permuted(self.examples, self._seed, pass_index, start, stop)
        begin = start // _BLOCK_POSITIONS * _BLOCK_POSITIONS
        block = _block(self.examples, self._seed, pass_index, begin)
        if stop <= begin + _BLOCK_POSITIONS:
            return block[start - begin : stop - begin]
        following = _block(self.examples, self._seed, pass_index, begin + _BLOCK_POSITIONS)
        return np.concatenate(
            (block[start - begin :], following[: stop - begin - _BLOCK_POSITIONS])
        )


class Chosen:
    """Order of the script: `order(pass_index)` returns the dataset indices of a pass.

    The function is called once per pass; the indices of two passes are cached.

    Raises:
        TypeError, ValueError: the function returns no indices of the dataset.
    """

    def __init__(self, order: ChosenOrder, dataset_examples: int) -> None:
        self._order = order
        self._dataset_examples = dataset_examples
        self._indices_of_pass = lru_cache(maxsize=2)(self._read)
        self.examples = 0  # the first pass may have any length
        first = self._indices_of_pass(0)
        self.examples = len(first)
        ends = np.concatenate((first[:_COMPARED_INDICES], first[-_COMPARED_INDICES:]))
        self.key = hashlib.sha256(ends.tobytes()).hexdigest(), self.examples

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        return self._indices_of_pass(pass_index)[start:stop]

    def _read(self, pass_index: int) -> Indices:
        values = np.asarray(self._order(pass_index))
        name = f"order: order({pass_index})"
        if values.ndim != 1 or values.dtype.kind not in "iu" or not len(values):
            raise TypeError(
                f"{name} must be a sequence of whole numbers, at least one; of a torch sampler "
                "give list(sampler)"
            )
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= self._dataset_examples:
            raise ValueError(
                f"{name} has indices from {low} to {high}, and the dataset those from 0 to "
                f"{self._dataset_examples - 1}"
            )
        if self.examples and len(values) != self.examples:
            raise ValueError(
                f"{name} has {len(values)} indices, and order(0) {self.examples}: all passes must "
                "have the same length"
            )
        return values.astype(np.int64, copy=False)


@lru_cache(maxsize=4)
def _block(examples: int, seed: int, pass_index: int, begin: int) -> Indices:
    stop = min(begin + _BLOCK_POSITIONS, examples)
    indices = _permuted(examples, seed, pass_index, begin, stop)
    indices.flags.writeable = False
    return indices


def _permuted(examples: int, seed: int, pass_index: int, start: int, stop: int) -> Indices:
    return permuted(np.arange(start, stop), examples, round_keys(seed, pass_index))


@lru_cache(maxsize=1)
def _whole_order(examples: int, seed: int, pass_index: int) -> Indices:
    return np.random.default_rng([seed, pass_index]).permutation(examples)
