"""The fake Google Cloud as a server: in a test's thread, or ``-m tests.fakes.gcp.server PORT``."""

from __future__ import annotations

import sys
import threading

from autoscaler.clock import Clock, SystemClock
from tests.fakes.gcp.front import Front
from tests.fakes.gcp.metadata_service import path_of
from tests.fakes.serving import Served


class FakeGcp(Served):
    """Compute Engine, and what of other services instances and a controller need beside it."""

    def __init__(self, clock: Clock, port: int = 0) -> None:
        self.front = Front(clock)
        super().__init__(self.front, port)

    def metadata_url(self, project: str, instance: str) -> str:
        """In place of ``http://metadata.google.internal`` for that instance."""
        return self.url + path_of(project, instance)


if __name__ == "__main__":
    server = FakeGcp(SystemClock(), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(server.url, flush=True)
    threading.Event().wait()
