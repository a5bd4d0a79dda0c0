"""A fake cloud as a server in a thread of the test's own process."""

from __future__ import annotations

import sys
import threading
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Print errors only; tests read the calls from the fake's account."""
        if type == "error":
            print(message % args, file=sys.stderr)


class Served:
    """Server of a WSGI application on a local port, from construction until `close`."""

    def __init__(self, application: Any, port: int = 0) -> None:
        self._server = make_server(
            "127.0.0.1", port, application, threaded=True, request_handler=_Quiet
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
