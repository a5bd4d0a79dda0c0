"""Domain values as JSON and back, checked."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from autoscaler.domain.errors import SpecError

Value = TypeVar("Value")


def encode(kind: type[Value], value: Value) -> bytes:
    """`value`, a `kind`, as JSON; infinities and NaN, for which JSON has no word, as strings."""
    return to_json(value, inf_nan_mode="strings")


def decode(kind: type[Value], text: bytes | str) -> Value:
    """The value that this JSON is.

    Raises:
        SpecError: it is not JSON of that kind; the message names the first field at fault.
    """
    try:
        value: Value = _adapter(cast(Hashable, kind)).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpecError(first["msg"], place or None) from None
    return value


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))
