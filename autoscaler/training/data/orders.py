"""Orders of a dataset's examples, pass after pass: pure functions, the same on every rank."""

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

# So many indices at both ends of the first pass are compared between replicas.
_COMPARED: Final = 10_000
# Few positions take as long to permute as so many, so short slices are cut from blocks.
_BLOCK: Final = 1024


class Order(Protocol):
    """Which example stands where in each pass.

    `key`: what must be equal on all replicas for the order to be, beside its kind, its seed and
    the dataset.
    """

    @property
    def examples(self) -> int:
        """How many examples a pass has."""
        ...

    @property
    def key(self) -> object:
        """Plain values, which replicas compare."""
        ...

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        ...


class Sequential:
    """The order of the dataset itself, in every pass."""

    key = None

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        return np.arange(start, stop)


class Shuffled:
    """A random order for each pass, given by a seed; it takes no memory.

    Passes before `first_keyed_pass` have the order of earlier versions, which held all indices
    of a pass: a pass that such a version began ends as it began.
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
        if stop - start >= _BLOCK:
            return _permuted(self.examples, self._seed, pass_index, start, stop)
        begin = start // _BLOCK * _BLOCK
        block = _block(self.examples, self._seed, pass_index, begin)
        if stop <= begin + _BLOCK:
            return block[start - begin : stop - begin]
        following = _block(self.examples, self._seed, pass_index, begin + _BLOCK)
        return np.concatenate((block[start - begin :], following[: stop - begin - _BLOCK]))


class Chosen:
    """An order of the script's own: `order(pass_index)` gives the dataset indices of a pass.

    They are read once a pass, and held for two passes.

    Raises:
        TypeError, ValueError: it gives something else.
    """

    def __init__(self, order: ChosenOrder, dataset_examples: int) -> None:
        self._order = order
        self._dataset_examples = dataset_examples
        self._of_pass = lru_cache(maxsize=2)(self._read)
        self.examples = 0  # the first pass may have any length
        first = self._of_pass(0)
        self.examples = len(first)
        ends = np.concatenate((first[:_COMPARED], first[-_COMPARED:]))
        self.key = hashlib.sha256(ends.tobytes()).hexdigest(), self.examples

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        return self._of_pass(pass_index)[start:stop]

    def _read(self, pass_index: int) -> Indices:
        found = np.asarray(self._order(pass_index))
        name = f"order: order({pass_index})"
        if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
            raise TypeError(
                f"{name} must be a sequence of whole numbers, at least one; of a torch sampler "
                "give list(sampler)"
            )
        least, most = int(found.min()), int(found.max())
        if least < 0 or most >= self._dataset_examples:
            raise ValueError(
                f"{name} has indices from {least} to {most}, and the dataset those from 0 to "
                f"{self._dataset_examples - 1}"
            )
        if self.examples and len(found) != self.examples:
            raise ValueError(
                f"{name} has {len(found)} indices, and order(0) {self.examples}: all passes must "
                "have the same length"
            )
        return found.astype(np.int64, copy=False)


@lru_cache(maxsize=4)
def _block(examples: int, seed: int, pass_index: int, begin: int) -> Indices:
    stop = min(begin + _BLOCK, examples)
    indices = _permuted(examples, seed, pass_index, begin, stop)
    indices.flags.writeable = False
    return indices


def _permuted(examples: int, seed: int, pass_index: int, start: int, stop: int) -> Indices:
    return permuted(np.arange(start, stop), examples, round_keys(seed, pass_index))


@lru_cache(maxsize=1)
def _whole_order(examples: int, seed: int, pass_index: int) -> Indices:
    return np.random.default_rng([seed, pass_index]).permutation(examples)
