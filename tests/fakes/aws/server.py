"""Fake AWS as a server: in a test's thread, or ``-m tests.fakes.aws.server``."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from autoscaler.clock import Clock, SystemClock

# Moto reads this at import. Without its hundreds of images a new account is quick to create.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    create_backend_app,
)

from tests.fakes.aws.proxy import CREDENTIAL, FaultProxy
from tests.fakes.serving import Served


class _Moto(DomainDispatcherApplication):
    """Moto, which looks up each call's service only once."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._kept: dict[str, Any] = {}

    def get_application(self, environ: dict[str, Any]) -> Any:
        credential = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        service = credential[3] if credential else ""
        if service not in ("ec2", "sqs"):
            return super().get_application(environ)
        if service not in self._kept:
            self._kept[service] = super().get_application(environ)
        return self._kept[service]


class FakeAws(Served):
    """Server of moto behind the proxy."""

    def __init__(self, clock: Clock, port: int = 0) -> None:
        self.proxy = FaultProxy(_Moto(), clock)
        super().__init__(self.proxy, port)


if __name__ == "__main__":
    server = FakeAws(SystemClock(), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(server.url, flush=True)
    threading.Event().wait()
