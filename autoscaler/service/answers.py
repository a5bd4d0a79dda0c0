"""Answers in the API's JSON."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from autoscaler.wire.codec import encode


def answer(kind: Any, value: object) -> Response:
    """`value`, a `kind`, as the body of an answer."""
    return Response(encode(kind, value), media_type="application/json")
