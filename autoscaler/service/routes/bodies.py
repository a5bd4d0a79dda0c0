"""JSON bodies of requests and responses of the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from autoscaler.wire.bodies import read_body
from autoscaler.wire.codec import encode


@dataclass(frozen=True, slots=True)
class Body:
    """Route dependency that parses the body of a request as a `kind`."""

    kind: Any

    async def __call__(self, request: Request) -> Any:
        """Return the parsed body."""
        return read_body(self.kind, await request.body())


def json_response(kind: Any, value: object) -> Response:
    """Return a response with a value of type `kind` as its JSON body."""
    return Response(encode(kind, value), media_type="application/json")
