"""Domain values as JSON documents."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from autoscaler.domain.errors import StoreError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return a dataclass or container as UTF-8 JSON, with infinities and NaN as in JSON5."""
    return to_json(value)


def decode(adapter: TypeAdapter[T], document: str | bytes) -> T:
    """Decode a document from `encode` to the type of `adapter`. Missing fields take defaults.

    Raises:
        StoreError: the document does not fit the type.
    """
    try:
        return adapter.validate_json(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(
            f"a stored {error.title} can't be read: {where}: {first['msg']}; "
            "restore the store from a copy"
        ) from error
