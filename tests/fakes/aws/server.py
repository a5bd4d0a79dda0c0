"""The fake AWS as a server: in a thread of a test, or with ``-m tests.fakes.aws.server``."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from autoscaler.clock import Clock, SystemClock

# Read when moto's EC2 is imported: an account without hundreds of images is made in no time.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    create_backend_app,
)
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.fakes.aws.proxy import CREDENTIAL, FaultProxy


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Who wants to know what was called asks the account; what breaks is told."""
        if type == "error":
            print(message % args, file=sys.stderr)


class _Moto(DomainDispatcherApplication):
    """Moto, that need not find out for each call which service it is for."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._kept: dict[str, Any] = {}

    def get_application(self, environ: dict[str, Any]) -> Any:
        found = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        service = found[3] if found else ""
        if service not in ("ec2", "sqs"):
            return super().get_application(environ)
        if service not in self._kept:
            self._kept[service] = super().get_application(environ)
        return self._kept[service]


class FakeAws:
    """Moto behind the proxy, on a port of this machine, from its making until `close`."""

    def __init__(self, clock: Clock, port: int = 0) -> None:
        self.proxy = FaultProxy(_Moto(), clock)
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
