"""Types of columns: domain dataclasses as JSON, exact money, words of an enum."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from sqlalchemy import Dialect, Enum, Text
from sqlalchemy.types import TypeDecorator

from autoscaler.domain.errors import StoreError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """A dataclass, or a container of them, as UTF-8 JSON; infinities and NaN as JSON5 has them."""
    return to_json(value)


def decode(adapter: TypeAdapter[T], document: str | bytes) -> T:
    """What `encode` made, as the type of `adapter`; fields that are missing take their defaults.

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


class Document(TypeDecorator[T], Generic[T]):
    """A value of the domain as JSON text. A value is replaced, never changed in place."""

    impl = Text
    cache_ok = True

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        super().__init__()
        self._adapter = adapter

    def process_bind_param(self, value: T | None, dialect: Dialect) -> str | None:
        """To JSON."""
        return None if value is None else encode(value).decode()

    def process_result_value(self, value: Any | None, dialect: Dialect) -> T | None:
        """From JSON."""
        return None if value is None else decode(self._adapter, value)


class Money(TypeDecorator[Decimal]):
    """A Decimal as text: the same digits come back on every database, trailing zeros too."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        """To text."""
        return None if value is None else str(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        """From text."""
        return None if value is None else Decimal(value)


def word(kind: type[StrEnum]) -> Enum:
    """A column that holds one of the values of `kind`; a new value needs no migration."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=20,
        values_callable=lambda members: [member.value for member in members],
    )
