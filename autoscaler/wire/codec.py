"""Encoding of domain values as JSON, also in parts, and validated decoding."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import printable

Value = TypeVar("Value")

# Escape sequences of JSON, and the bytes that begin C1 controls, DEL and marks of direction.
_MAY_HOLD_CONTROLS: Final = re.compile(rb"\\[bfnrtu]|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2[\x80\x81]")
PART_BYTES: Final = 1 << 20


def encode(kind: type[Value], value: Value) -> bytes:
    """Return a value of type `kind` as JSON; infinities and NaN become strings."""
    return to_json(value, inf_nan_mode="strings")


def decode(kind: type[Value], text: bytes | str) -> Value:
    """Parse JSON as a value of type `kind`.

    Raises:
        SpecError: the text is not JSON of this type; the message names the first wrong field.
    """
    try:
        value: Value = _adapter(cast(Hashable, kind)).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise SpecError(first["msg"], field or None) from None
    return value


def decode_printable(kind: type[Value], text: bytes) -> Value:
    """Parse JSON as a value of type `kind` whose texts are safe to print on a terminal.

    Control characters, line breaks included, become their escape sequences, because names,
    causes and reasons come from jobs, instances and clouds.

    Raises:
        SpecError: as `decode`.
    """
    if _MAY_HOLD_CONTROLS.search(text) is None:
        return decode(kind, text)
    try:
        return decode(kind, to_json(_printable(from_json(text)), inf_nan_mode="strings"))
    except ValueError as error:
        raise SpecError(f"the answer is not JSON: {error}") from None


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(part) for part in value]
    if isinstance(value, dict):
        return {printable(key): _printable(part) for key, part in value.items()}
    return value


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def in_parts(
    kind: type[Value], items: Sequence[Value], part_bytes: int = PART_BYTES
) -> Iterator[tuple[Value, ...]]:
    """Yield the items in order, in parts of at most `part_bytes` as JSON.

    There is at least one part, maybe empty. An item above the limit is a part by itself.
    """
    part: list[Value] = []
    size_bytes = 0
    for item in items:
        item_bytes = len(encode(kind, item))
        if part and size_bytes + item_bytes > part_bytes:
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(item)
        size_bytes += item_bytes
    yield tuple(part)
