"""Faults of the fake AWS, and the error bodies of its services."""

from __future__ import annotations

import json

from tests.fakes.faults import Fault, Faults, When

__all__ = ["Fault", "Faults", "When", "error_body"]


def error_body(service: str, code: str, message: str) -> bytes:
    """Return an error in the wording of a service."""
    if service == "ec2":
        return (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            "</Errors><RequestID>fault</RequestID></Response>"
        ).encode()
    if service == "sts":
        return (
            f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            "<RequestId>fault</RequestId></ErrorResponse>"
        ).encode()
    if service == "s3":
        return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return json.dumps({"__type": code, "message": message}).encode()
