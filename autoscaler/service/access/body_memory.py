"""Memory for the bodies of requests: of all together, and of each sender."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

_MOST_BYTES: Final = 256 << 20
_MOST_OF_SENDER_BYTES: Final = 64 << 20
_SMALL_BYTES: Final = 64 << 10  # of each body, which the bounds leave out


class BodyMemory:
    """Bytes of bodies that are in memory, by sender. Not thread-safe.

    Small bodies, such as heartbeats, do not count, so that large ones never stop them.
    """

    def __init__(
        self, most_bytes: int = _MOST_BYTES, most_of_sender_bytes: int = _MOST_OF_SENDER_BYTES
    ) -> None:
        self._most_bytes = most_bytes
        self._most_of_sender_bytes = most_of_sender_bytes
        self._held_bytes: Counter[str] = Counter()

    def hold(self, sender: str, count: int) -> None:
        """Count bytes of a sender.

        Raises:
            HTTPException: bodies of this sender or of all take too much memory; status 429.
        """
        of_sender_bytes = self._held_bytes[sender] + count
        is_too_much = of_sender_bytes > self._most_of_sender_bytes
        if is_too_much or self._held_bytes.total() + count > self._most_bytes:
            text = "too many large bodies are being received: try again in 1 s"
            raise HTTPException(429, text, {"Retry-After": "1"})
        self._held_bytes[sender] = of_sender_bytes

    def free(self, sender: str, count: int) -> None:
        """Count bytes of a sender no more."""
        self._held_bytes[sender] -= count
        if not self._held_bytes[sender]:
            del self._held_bytes[sender]


class LimitedBody:
    """Body of one request, of at most `limit` bytes.

    A body that is `declared` to be larger is not read at all.
    """

    def __init__(
        self, receive: Receive, limit: int, declared: int, memory: BodyMemory, sender: str
    ) -> None:
        self._receive = receive
        self._limit = limit
        self._declared = declared
        self._memory = memory
        self._sender = sender
        self._received_bytes = 0
        self._held_bytes = 0

    async def receive(self) -> Message:
        """Receive the next part.

        Raises:
            HTTPException: the body is larger than its limit, with status 413, or bodies take too
                much memory, with status 429.
        """
        if self._declared > self._limit:
            raise self._too_large
        message = await self._receive()
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._limit:
            raise self._too_large
        new_bytes = max(self._received_bytes - _SMALL_BYTES, 0) - self._held_bytes
        if new_bytes > 0:
            self._memory.hold(self._sender, new_bytes)
            self._held_bytes += new_bytes
        return message

    def free(self) -> None:
        """Count the body no more, at the end of its request."""
        if self._held_bytes:
            self._memory.free(self._sender, self._held_bytes)

    @property
    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"the body is larger than the {self._limit:,} bytes that are taken"
        )
