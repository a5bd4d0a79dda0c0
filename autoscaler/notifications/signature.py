"""Signatures of webhooks as in the Standard Webhooks specification, version 1; pure."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from autoscaler.domain.errors import SpecError

PREFIX: Final = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64
_VERSION: Final = "v1"


def keys_of(text: str) -> tuple[bytes, ...]:
    """Return the keys of a secret: one, or two while it is renewed, separated by white space.

    Raises:
        SpecError: the text has no such keys; the message does not have the text.
    """
    keys: list[bytes] = []
    for word in text.split():
        try:
            key = base64.b64decode(word.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not word.startswith(PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
            keys = []
            break
        keys.append(key)
    if not 1 <= len(keys) <= 2:
        raise SpecError(
            f"must be {PREFIX} and 24 to 64 random bytes in base64, one or two of them; make one "
            f"by: echo {PREFIX}$(openssl rand -base64 32)"
        )
    return tuple(keys)


def signed_headers(
    keys: tuple[bytes, ...], message_id: str, now_seconds: float, body: bytes
) -> dict[str, str]:
    """Return the headers of a webhook: id, time of the attempt, and a signature by each key."""
    timestamp = f"{now_seconds:.0f}"
    signatures = (f"{_VERSION},{_signature(key, message_id, timestamp, body)}" for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(signatures),
    }


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    content = f"{message_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()
