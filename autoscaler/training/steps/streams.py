"""Random numbers of micro-steps: each has a stream of its own, whatever ran before it.

`torch.manual_seed(0)` at the start of a script would give all ranks the same dropout masks, and a
restart would repeat them from the first. So the generators are seeded anew for each micro-step, by
the session's seed, the number of the step, the rank and the part of its share.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
import torch

# Kinds of device whose generators exist once the kind is used.
_INITIALIZED_AT_USE: Final = (torch.cuda, torch.xpu, torch.mtia)


class Use(Enum):
    """What random numbers are drawn for: a batch of examples, or the passes through the model.

    The making of a batch draws more of them in a new process, so the passes have their own.
    """

    BATCH = auto()
    PASSES = auto()


@dataclass(frozen=True, slots=True)
class Stream:
    """Which random numbers a micro-step has: those of a rank, or of a logical rank."""

    rank: int
    part: int


def begin_stream(seed: int, step: int, stream: Stream, use: Use, seeds_all: bool) -> None:
    """Seed torch's generators, and where `seeds_all` those of Python and NumPy, too."""
    key = repr((seed, step, stream.rank, stream.part, use.name)).encode()
    number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")
    _seed_torch(number)
    if seeds_all:
        random.seed(number)
        np.random.seed(number)


def _seed_torch(number: int) -> None:
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
