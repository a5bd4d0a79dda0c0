"""JSON bodies of requests and responses of the API."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fastapi import Request, Response

from autoscaler.wire.bodies import read_body
from autoscaler.wire.codec import encode


@dataclass(frozen=True, slots=True)
class Body:
    """Route dependency that parses the body of a request as a `kind`."""

    kind: Any
    may_be_empty: bool = False

    async def __call__(self, request: Request) -> Any:
        """Return the parsed body; the defaults of its type for one that may be empty."""
        body = await request.body()
        return self.kind() if self.may_be_empty and not body else read_body(self.kind, body)


def json_response(kind: Any, value: object) -> Response:
    """Return a response with a value of type `kind` as its JSON body."""
    return Response(encode(kind, value), media_type="application/json")


def change_text(kind: Any, change: object, before: object, after: object) -> tuple[str, str]:
    """Return the earlier and the new values of the fields that a change sets, as JSON texts.

    `change` is a value of the type `kind`, whose fields `before` and `after` have, too.
    """
    names = [field.name for field in fields(kind) if getattr(change, field.name) is not None]
    texts = [
        encode(dict, {name: getattr(value, name) for name in names}).decode()
        for value in (before, after)
    ]
    return texts[0], texts[1]
