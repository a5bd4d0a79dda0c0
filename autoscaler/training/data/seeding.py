"""Random numbers of a dataset's own, such as those of augmentations, by the batch they are for.

A worker draws from generators of its own, so what an example looks like depends on how many
workers there are and what they made before. With logical ranks each list of indices has a seed
instead, which the worker sets before it makes the batch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Dataset

# Kinds of device whose generators exist once the kind is used.
_INITIALIZED_AT_USE: Final = (torch.cuda, torch.xpu, torch.mtia)


def seed_all(number: int) -> None:
    """Seed the generators of torch, Python and NumPy."""
    seed_torch(number)
    random.seed(number)
    np.random.seed(number)


def seed_torch(number: int) -> None:
    """Seed the generators of the CPU and of all devices in use.

    `torch.manual_seed` also formats the stack of its caller for each kind of device that is not
    in use, which takes 0.25 ms on one core.
    """
    torch.default_generator.manual_seed(number)
    for kind in _INITIALIZED_AT_USE:
        if kind.is_initialized():
            kind.manual_seed_all(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


class SeededIndices(tuple[int, ...]):
    """Dataset indices of one batch, and the seed of the random numbers that it draws."""

    seed: int

    @classmethod
    def of(cls, indices: Sequence[int], seed: int) -> SeededIndices:
        """Return `indices` with `seed`."""
        made = cls(indices)
        made.seed = seed
        return made

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) is True and self.seed == getattr(other, "seed", None)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.seed))


class SeedingDataset(Dataset[Any]):
    """A dataset that is given `SeededIndices`; `plain` is the script's own."""

    def __init__(self, plain: Dataset[Any]) -> None:
        self.plain = plain

    def __getitems__(self, indices: Sequence[int]) -> Any:
        if isinstance(indices, SeededIndices):
            seed_all(indices.seed)
        many = getattr(self.plain, "__getitems__", None)
        return many(list(indices)) if many else [self.plain[index] for index in indices]
