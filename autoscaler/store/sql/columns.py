"""Types of columns: domain dataclasses as JSON, exact money, values of an enum."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Dialect, Enum, Text
from sqlalchemy.types import TypeDecorator

from autoscaler.store.records.documents import decode, encode

T = TypeVar("T")


class Document(TypeDecorator[T], Generic[T]):
    """Column of a domain value as JSON text. Values are replaced, never changed in place."""

    impl = Text
    cache_ok = True

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        super().__init__()
        self._adapter = adapter

    def process_bind_param(self, value: T | None, dialect: Dialect) -> str | None:
        """Return the value as JSON text; None stays None."""
        return None if value is None else encode(value).decode()

    def process_result_value(self, value: Any | None, dialect: Dialect) -> T | None:
        """Return the value of a JSON text; None stays None."""
        return None if value is None else decode(self._adapter, value)


class Money(TypeDecorator[Decimal]):
    """Column of a Decimal as text, which keeps all digits, trailing zeros included."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        """Return the amount as text; None stays None."""
        return None if value is None else str(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        """Return the amount of a text; None stays None."""
        return None if value is None else Decimal(value)


def word(kind: type[StrEnum]) -> Enum:
    """Return a column type for the values of the enum `kind`; new values need no migration."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=20,
        values_callable=lambda members: [member.value for member in members],
    )
