"""Which examples a step takes, and which of them each rank.

A *pass* is one walk through the whole dataset in an order of its own. The position in it belongs
to the job, not to a rank, so each example of a pass is taken exactly once however often ranks
come and go: a step that was not committed leaves the position where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Share:
    """The examples that one rank takes of one step, in micro-steps.

    `micro_steps` hold the dataset indices; `weights` the weight of each micro-step's mean loss in
    the mean over the whole step. A rank for which nothing is left gets one example of weight 0,
    so that it can take part in the step's collectives.
    """

    micro_steps: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def examples(self) -> int:
        """How many examples count."""
        return sum(
            len(indices)
            for indices, weight in zip(self.micro_steps, self.weights, strict=True)
            if weight > 0
        )


class ElasticSampler:
    """The order of a dataset's examples, pass after pass; the same on every rank."""

    def __init__(self, examples: int, seed: int, shuffle: bool = True) -> None:
        if examples < 1:
            raise ValueError("the dataset is empty")
        self._examples = examples
        self._seed = seed
        self._shuffle = shuffle
        self._pass_index = -1
        self._order: NDArray[np.int64] = np.arange(examples)

    @property
    def examples(self) -> int:
        """How many examples a pass has."""
        return self._examples

    def take(self, pass_index: int, position: int, count: int) -> NDArray[np.int64]:
        """The next `count` dataset indices of a pass from `position`, fewer at its end."""
        if pass_index != self._pass_index:
            self._order = self._order_of(pass_index)
            self._pass_index = pass_index
        return self._order[position : position + count]

    def _order_of(self, pass_index: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self._examples)
        return np.random.default_rng([self._seed, pass_index]).permutation(self._examples)


def share(indices: NDArray[np.int64], rank: int, ranks: int, micro_steps: int) -> Share:
    """Rank `rank`'s part of a step's `indices`, in up to `micro_steps` micro-steps.

    Parts differ by at most one example, and so do micro-steps.
    """
    total = len(indices)
    own = np.array_split(indices, ranks)[rank]
    if not len(own):
        return Share(((int(indices[0]),),), (0.0,))
    parts = [part for part in np.array_split(own, min(micro_steps, len(own))) if len(part)]
    return Share(
        tuple(tuple(int(index) for index in part) for part in parts),
        tuple(len(part) / total for part in parts),
    )
