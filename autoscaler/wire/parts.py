"""Splitting of long messages into parts that the controller accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from autoscaler.wire.codec import encode

PART_BYTES: Final = 1 << 20

Item = TypeVar("Item")


def in_parts(
    kind: type[Item], items: Sequence[Item], part_bytes: int = PART_BYTES
) -> Iterator[tuple[Item, ...]]:
    """Yield the items in order, in parts of at most `part_bytes` as JSON.

    There is at least one part, maybe empty. An item above the limit is a part by itself.
    """
    part: list[Item] = []
    size_bytes = 0
    for item in items:
        item_bytes = len(encode(kind, item))
        if part and size_bytes + item_bytes > part_bytes:
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(item)
        size_bytes += item_bytes
    yield tuple(part)
