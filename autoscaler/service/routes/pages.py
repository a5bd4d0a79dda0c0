"""Pages of long lists: a limit, an opaque cursor, and a header with the address of the next page.

The body of a page is what the whole list would be, so that a client that knows no pages reads it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Query, Request

from autoscaler.domain.errors import SpecError
from autoscaler.service.routes.bodies import JsonResponse, json_response

Item = TypeVar("Item")
Value = TypeVar("Value")
LARGEST_PAGE: Final = 1000
_LONGEST_CURSOR: Final = 400
_LARGEST: Final = 1 << 62

Limit = Annotated[
    int | None,
    Query(ge=1, le=LARGEST_PAGE, description="Most items of the answer. Without it: all items."),
]
CursorText = Annotated[
    str | None,
    Query(
        max_length=_LONGEST_CURSOR,
        description="Place after which the page begins, from the Link header of the page before.",
    ),
]


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Part of a list that a request asks for. `limit` None: no limit."""

    limit: int | None
    cursor: str | None

    def place(self, order: str, *kinds: type) -> tuple[Any, ...] | None:
        """Return the values of the last item of the page before; None for the first page.

        Args:
            order: name of the list and its order, for which the cursor was made.
            kinds: types of the values.

        Raises:
            SpecError: the cursor is not one of this list.
        """
        if self.cursor is None:
            return None
        try:
            values = json.loads(urlsafe_b64decode(self.cursor.encode()))
            is_of_list = values[0] == order and len(values) == len(kinds) + 1
            if is_of_list and all(map(_is_value, values[1:], kinds)):
                return tuple(values[1:])
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        raise SpecError("is no cursor of this list: leave it out for the first page", "cursor")

    def part(
        self, items: Sequence[Item], order: str, key: Callable[[Item], str]
    ) -> tuple[tuple[Item, ...], str | None]:
        """Return the items of the page, and the cursor of the next one; None after the last.

        Args:
            items: the whole list, sorted by `key`.
            order: name of the list, for its cursors.
            key: text that is different for each item.

        Raises:
            SpecError: the cursor is not one of this list.
        """
        place = self.place(order, str)
        rest = [item for item in items if place is None or key(item) > place[0]]
        page = rest if self.limit is None else rest[: self.limit]
        more = len(page) < len(rest)
        return tuple(page), cursor_of(order, key(page[-1])) if more else None


def _is_value(value: object, kind: type) -> bool:
    """Return whether a value has a type, and databases take it."""
    if isinstance(value, str):
        return kind is str and value.isprintable()
    return type(value) is kind and isinstance(value, (int, float)) and abs(value) < _LARGEST


def page_query(limit: Limit = None, cursor: CursorText = None) -> PageQuery:
    """Return the part of a list that a request asks for, as a dependency of its route."""
    return PageQuery(limit, cursor)


def cursor_of(order: str, *values: object) -> str:
    """Return the cursor after an item with these values, in a list of this order."""
    return urlsafe_b64encode(json.dumps([order, *values]).encode()).decode()


def page_response(
    kind: type[Value], value: Value, request: Request, cursor: str | None
) -> JsonResponse[Value]:
    """Return a page as the body of a response, with the address of the next page in its header.

    `cursor` is that of the next page; None for the last page.
    """
    response = json_response(kind, value)
    if cursor is not None:
        query = request.url.include_query_params(cursor=cursor).query
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return response
