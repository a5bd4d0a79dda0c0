"""Random numbers of a dataset, such as those of augmentations, seeded by batch.

A worker has its own generators, so an augmented example would depend on the number of workers and
their earlier batches. With logical ranks each list of indices carries a seed instead, which is set
before the batch is loaded.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Dataset

# Kinds of device whose generators exist only after first use.
_LAZY_DEVICES: Final = (torch.cuda, torch.xpu, torch.mtia)


def seed_all(number: int) -> None:
    """Seed the generators of torch, Python and NumPy."""
    seed_torch(number)
    random.seed(number)
    np.random.seed(number)


def seed_torch(number: int) -> None:
    """Seed torch's generators of the CPU and of all devices in use.

    `torch.manual_seed` also formats its caller's stack for each kind of device that is not in use,
    which takes 0.25 ms on one core.
    """
    torch.default_generator.manual_seed(number)
    for kind in _LAZY_DEVICES:
        if kind.is_initialized():
            kind.manual_seed_all(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


class SeededIndices(tuple[int, ...]):
    """Dataset indices of one batch, and the seed of its random numbers."""

    seed: int

    @classmethod
    def of(cls, indices: Sequence[int], seed: int) -> SeededIndices:
        """Return `indices` with `seed`."""
        seeded = cls(indices)
        seeded.seed = seed
        return seeded

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) is True and self.seed == getattr(other, "seed", None)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.seed))


class SeedingDataset(Dataset[Any]):
    """Dataset that seeds the generators for `SeededIndices`; `plain` is the script's dataset."""

    def __init__(self, plain: Dataset[Any]) -> None:
        self.plain = plain

    def __getitems__(self, indices: Sequence[int]) -> Any:
        if isinstance(indices, SeededIndices):
            seed_all(indices.seed)
        get_many = getattr(self.plain, "__getitems__", None)
        return get_many(list(indices)) if get_many else [self.plain[index] for index in indices]
