"""Random numbers of micro-steps: each micro-step has its own stream, independent of earlier ones.

`torch.manual_seed(0)` at the start of a script would give all ranks the same dropout masks, and a
restart would repeat them from the first. The generators are therefore seeded for each micro-step,
by the session's seed, the step's number, the rank and the part of its share.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum, auto

from autoscaler.training.data.seeding import seed_all, seed_torch


class Use(Enum):
    """Purpose of random numbers: loading a batch, or the passes through the model.

    Loading a batch draws more numbers in a new process, so the passes have their own stream.
    """

    BATCH = auto()
    PASSES = auto()


@dataclass(frozen=True, slots=True)
class Stream:
    """Stream of random numbers of a micro-step: of a rank or a logical rank, and its part."""

    rank: int
    part: int


def seed_of(seed: int, step: int, stream: Stream, use: Use) -> int:
    """Return the seed of the random numbers of one micro-step of step `step`."""
    key = repr((seed, step, stream.rank, stream.part, use.name)).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big")


def begin_stream(seed: int, step: int, stream: Stream, use: Use, seeds_all: bool) -> None:
    """Seed torch's generators, and with `seeds_all` those of Python and NumPy, too."""
    number = seed_of(seed, step, stream, use)
    if seeds_all:
        seed_all(number)
    else:
        seed_torch(number)
