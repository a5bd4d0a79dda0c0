"""Refusal of options that can't be elastic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SHARDED_IN_A_SCRIPT: Final = (
    "a model above a device's memory can be sharded with fully_shard in a script with session"
)


def refuse(owner: str, remedies: Mapping[str, tuple[object, str]]) -> None:
    """Check that no option is set that can't be elastic.

    Args:
        owner: what can't train with such options.
        remedies: by option, whether it is set, and what to do in its place.

    Raises:
        ValueError: one is set; the message names the first, and its remedy.
    """
    for option, (is_set, remedy) in remedies.items():
        if is_set:
            raise ValueError(f"{option}: {owner} can't train with it: {remedy}")
