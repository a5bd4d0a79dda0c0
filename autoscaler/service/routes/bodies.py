"""Requests and answers in the API's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from autoscaler.wire.bodies import read_body
from autoscaler.wire.codec import encode


@dataclass(frozen=True, slots=True)
class Body:
    """A dependency of a route: the body of its request, as a `kind`."""

    kind: Any

    async def __call__(self, request: Request) -> Any:
        """Return the value that the body is."""
        return read_body(self.kind, await request.body())


def answer(kind: Any, value: object) -> Response:
    """`value`, a `kind`, as the body of an answer."""
    return Response(encode(kind, value), media_type="application/json")
