"""Order of the rows of a table, which the address of its page states.

A table's parameter has the key of a column, after "-" with the greatest value first, such as
`sort=-price`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Request

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted

Row = TypeVar("Row")
_FALLING: Final = "-"
_LEFT_OUT: Final = ("cursor", "done")
"""Parameters of an address that another order makes meaningless."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """Column by which a table can be ordered.

    `value` returns what rows are compared by; rows for which it is None come last. A column that
    `begins_high` has the greatest value first when it is chosen.
    """

    key: str
    value: Callable[[Row], Any]
    begins_high: bool = False

    @property
    def first_choice(self) -> str:
        """Value of the parameter when the column is chosen."""
        return f"{_FALLING if self.begins_high else ''}{self.key}"

    @property
    def other_choice(self) -> str:
        """Value of the parameter for the opposite order."""
        return f"{'' if self.begins_high else _FALLING}{self.key}"


@dataclass(frozen=True, slots=True)
class OrderedTable(Generic[Row]):
    """Table whose rows can be ordered: its parameter, its columns, and its usual order."""

    parameter: str
    columns: tuple[Column[Row], ...]
    usual: str

    def order(self, request: Request) -> TableOrder[Row]:
        """Return the order that the address of a request states.

        Raises:
            SpecError: the table has no such order.
        """
        chosen = request.query_params.get(self.parameter) or self.usual
        key = chosen.removeprefix(_FALLING)
        column = next((column for column in self.columns if column.key == key), None)
        if column is None:
            keys = ", ".join(known.key for known in self.columns)
            raise SpecError(
                f"{quoted(chosen)} is no order of this table: choose one of {keys}, after "
                f'"{_FALLING}" with the greatest first',
                self.parameter,
            )
        kept = tuple(
            (name, value)
            for name, value in request.query_params.multi_items()
            if name not in (self.parameter, *_LEFT_OUT)
        )
        return TableOrder(self, column, chosen.startswith(_FALLING), request.url.path, kept)

    def column(self, key: str) -> Column[Row]:
        """Return the column of a key, which must be one of the table."""
        return next(column for column in self.columns if column.key == key)


@dataclass(frozen=True, slots=True)
class TableOrder(Generic[Row]):
    """Order of a table on one page, with the links to its other orders.

    `path` and `query` are those of the page; `query` has all parameters but that of the table.
    """

    table: OrderedTable[Row]
    by: Column[Row]
    is_falling: bool
    path: str
    query: tuple[tuple[str, str], ...]

    @property
    def choice(self) -> str:
        """Value of the table's parameter."""
        return f"{_FALLING if self.is_falling else ''}{self.by.key}"

    @property
    def is_usual(self) -> bool:
        """Whether it is the order of the page without a parameter."""
        return self.choice == self.table.usual

    def sorted(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows in order. Rows of equal values keep theirs; those without come last."""
        valued = [(self.by.value(row), row) for row in rows]
        known = [(value, row) for value, row in valued if _is_known(value)]
        known.sort(key=lambda pair: pair[0], reverse=self.is_falling)
        return [row for _, row in known] + [row for value, row in valued if not _is_known(value)]

    def page(self, cursor: str | None = None) -> str:
        """Return the address of the page of the table after a cursor; None: the first page."""
        stated = () if self.is_usual else ((self.table.parameter, self.choice),)
        return self._address(*stated, *(() if cursor is None else (("cursor", cursor),)))

    def standing(self, key: str) -> str:
        """Return how the table is ordered by a column, as `aria-sort` has it; empty: it is not."""
        if key != self.by.key:
            return ""
        return "descending" if self.is_falling else "ascending"

    def anchor(self, key: str) -> str:
        """Return the id of the link in the head of a column."""
        return f"{self.table.parameter}-by-{key}"

    def link(self, key: str) -> str:
        """Return the address of the page ordered by a column, or the other way round by it."""
        column = self.table.column(key)
        choice = column.first_choice
        if key == self.by.key and self.choice == choice:
            choice = column.other_choice
        stated = () if choice == self.table.usual else ((self.table.parameter, choice),)
        return self._address(*stated)

    def _address(self, *stated: tuple[str, str]) -> str:
        """Return the address of the page with its other parameters and these."""
        query = urlencode((*self.query, *stated))
        return f"{self.path}?{query}" if query else self.path


def _is_known(value: object) -> bool:
    """Return whether rows can be compared by a value: None and NaN have no place."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))
