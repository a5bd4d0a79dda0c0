"""Fake Google Cloud as a server: in a test's thread, or ``-m tests.fakes.gcp.server PORT``.

One port serves Compute Engine, Pub/Sub's subscriptions, the Cloud Billing catalogue, BigQuery's
queries, both APIs of Cloud Storage, tokens of service accounts and downscoped tokens of the
Security Token Service, instances' metadata servers and the keys of their identity tokens. Projects
do not share state. Every token is valid, except a downscoped one outside its bounds.

The behaviour follows the discovery documents and reports about the real services. These parts are
guesses: the answer to a request id that was used for another request (400), the error code of a
creation that a deletion cancels, and all durations. There is no IAM, no network, no disk, no
managed group and no start of a stopped instance. An unsupported method answers 501.

A wait for an operation sleeps by the project's clock: a virtual clock jumps, and all due events
run. `lifecycle` has the cloud's own actions: `preempt`, `take`, `shut_down`, `break_host`.
"""

from __future__ import annotations

import sys
import threading

from autoscaler.clock import Clock, SystemClock
from tests.fakes.gcp.front import Front
from tests.fakes.gcp.metadata_service import path_of
from tests.fakes.serving import Served


class FakeGcp(Served):
    """Server of Compute Engine and of the other services that instances and a controller use."""

    def __init__(self, clock: Clock, port: int = 0) -> None:
        self.front = Front(clock)
        super().__init__(self.front, port)

    def metadata_url(self, project: str, instance: str) -> str:
        """Return the URL that replaces ``http://metadata.google.internal`` for an instance."""
        return self.url + path_of(project, instance)


if __name__ == "__main__":
    server = FakeGcp(SystemClock(), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(server.url, flush=True)
    threading.Event().wait()
