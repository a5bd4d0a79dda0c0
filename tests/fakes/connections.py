"""A stand-in for the connections of a client of the controller."""

from __future__ import annotations

from collections.abc import Callable

import httpcore


class Answering(httpcore.ConnectionInterface):
    """Connections on which a function of a request and its body answers with status and body."""

    def __init__(self, answer: Callable[[httpcore.Request, bytes], tuple[int, bytes]]) -> None:
        self._answer = answer

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Return the function's answer to a request."""
        assert not isinstance(request.stream, bytes)
        body = b"".join(request.stream)  # type: ignore[arg-type]  # a synchronous client's stream is not asynchronous
        status, content = self._answer(request, body)
        return httpcore.Response(status, content=content)
