"""JSON bodies of requests and responses of the API."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, cast

from fastapi import Request, Response

from autoscaler.wire.bodies import read_body
from autoscaler.wire.codec import encode

Value = TypeVar("Value")
Content = TypeVar("Content", covariant=True)


class JsonResponse(Response, Generic[Content]):
    """Response with a JSON body.

    A route that returns a `JsonResponse[JobView]` says so in the document of the API, too: the
    type in brackets is the `kind` of a class of its own.
    """

    media_type = "application/json"
    kind: ClassVar[Any] = None

    def __class_getitem__(cls, kind: Any) -> Any:
        """Return the class of responses whose body is of a type."""
        return _response_class(kind)


@cache
def _response_class(kind: Any) -> type[JsonResponse[Any]]:
    return cast("type[JsonResponse[Any]]", type("JsonResponse", (JsonResponse,), {"kind": kind}))


class NoContent(Response):
    """Response to a request that has been carried out, without a body."""

    def __init__(self) -> None:
        super().__init__(status_code=204)


class Created(Response):
    """Response to an upload that is stored, without a body."""

    def __init__(self) -> None:
        super().__init__(status_code=201)


@dataclass(frozen=True, slots=True)
class Body:
    """Route dependency that parses the body of a request as a `kind`."""

    kind: Any
    may_be_empty: bool = False

    async def __call__(self, request: Request) -> Any:
        """Return the parsed body; the defaults of its type for one that may be empty."""
        body = await request.body()
        return self.kind() if self.may_be_empty and not body else read_body(self.kind, body)


def json_response(kind: type[Value], value: Value) -> JsonResponse[Value]:
    """Return a response with a value of type `kind` as its JSON body."""
    return JsonResponse(encode(kind, value))


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
