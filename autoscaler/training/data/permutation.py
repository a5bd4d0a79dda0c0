"""Keyed pseudo-random permutation of [0, size), computed for single positions without arrays.

An alternating Feistel network permutes the smallest range of 2^bits that contains `size` numbers.
Results outside [0, size) are permuted again until they are inside ("cycle walking"). Both are from
Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002. The round function is the
finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). The permutation orders examples; it
is not meant to be secret.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

# With fewer rounds or bits, orders of a handful of examples are not equally frequent.
_ROUNDS: Final = 8
_LEAST_BITS: Final = 6

Words = NDArray[np.uint64]


@lru_cache(maxsize=8)
def round_keys(seed: int, pass_index: int) -> tuple[np.uint64, ...]:
    """Return the keys of the permutation for a seed and a pass."""
    return tuple(np.random.SeedSequence([seed, pass_index]).generate_state(_ROUNDS, np.uint64))


def permuted(
    positions: NDArray[np.int64], size: int, keys: tuple[np.uint64, ...]
) -> NDArray[np.int64]:
    """Return the values at `positions` of the permutation of [0, size) with these keys."""
    bits = max(_LEAST_BITS, (size - 1).bit_length())
    values = _feistel(positions.astype(np.uint64), bits, keys)
    while (outside := np.flatnonzero(values >= np.uint64(size))).size:
        values[outside] = _feistel(values[outside], bits, keys)
    return values.astype(np.int64)


def _feistel(values: Words, bits: int, keys: tuple[np.uint64, ...]) -> Words:
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    high, low = values >> low_bits, values & low_mask
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        high ^= _mixed(low ^ even) & high_mask
        low ^= _mixed(high ^ odd) & low_mask
    return high << low_bits | low


def _mixed(words: Words) -> Words:
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)
