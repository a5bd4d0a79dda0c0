"""The fake AWS as a server: in a thread of a test, or with ``-m tests.fakes.aws.server``."""

from __future__ import annotations

import os
import sys
import threading

from autoscaler.clock import Clock, SystemClock

# Read when moto's EC2 is imported: an account without hundreds of images is made in no time.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    create_backend_app,
)
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.fakes.aws.proxy import FaultProxy


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Who wants to know what was called asks the account; what breaks is told."""
        if type == "error":
            print(message % args, file=sys.stderr)


class FakeAws:
    """Moto behind the proxy, on a port of this machine, from its making until `close`."""

    def __init__(self, clock: Clock, port: int = 0) -> None:
        self.proxy = FaultProxy(DomainDispatcherApplication(create_backend_app), clock)
        self._server = make_server(
            "127.0.0.1", port, self.proxy, threaded=True, request_handler=_Quiet
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


if __name__ == "__main__":
    server = FakeAws(SystemClock(), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(server.url, flush=True)
    threading.Event().wait()
