"""Orders of a dataset's examples, pass after pass: pure functions, the same on every rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autoscaler.training.permutation import permuted, round_keys

Indices = NDArray[np.int64]


class Order(Protocol):
    """Which example stands where in each pass. `examples` is the length of every pass."""

    @property
    def examples(self) -> int:
        """How many examples a pass has."""
        ...

    def slice(self, pass_index: int, start: int, stop: int) -> Indices:
        """Return the dataset indices at positions `start` to `stop` of a pass."""
        ...


class Sequential:
    """The order of the dataset itself, in every pass."""

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
        keys = round_keys(self._seed, pass_index)
        return permuted(np.arange(start, stop), self.examples, keys)


@lru_cache(maxsize=1)
def _whole_order(examples: int, seed: int, pass_index: int) -> Indices:
    return np.random.default_rng([seed, pass_index]).permutation(examples)
