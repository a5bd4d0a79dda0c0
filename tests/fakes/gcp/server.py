"""The fake Google Cloud as a server: in a test's thread, or ``-m tests.fakes.gcp.server PORT``.

On one port: Compute Engine, Pub/Sub's subscriptions, the Cloud Billing catalogue, BigQuery's
queries, both APIs of Cloud Storage, tokens of service accounts and narrower ones of the Security
Token Service, instances' metadata servers and the keys of their identity tokens. Every project is
apart from the others; any token is good, but for those that were narrowed.

What is known of the real ones from their discovery documents and from reports is done so. A guess
is what is said of a request id that was used for another request (400), the code of a creation
that a deletion cuts short, and how long anything takes. There is no IAM, no network, no disk, no
managed group and no start of a stopped instance; a method that is not done answers 501.

A wait for an operation sleeps by the project's clock: a virtual one jumps, and with it all that is
due. What the cloud does by itself is in `lifecycle`: `preempt`, `take`, `shut_down`,
`break_host`.
"""

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
