"""Controller process of the failover tests: `castor serve --follow` over a cloud that is a file.

Arguments: a JSON object with the fields of `Options`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from autoscaler.clock import SystemClock
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import CloudInstance, LaunchRequest
from autoscaler.main import ServeSettings, deployment, serve
from autoscaler.store.sql.file_lock import process_name
from tests.controller.cloud import FileCloud
from tests.controller.world import RecordedLighthouses


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one controller process."""

    state: str
    store_url: str
    cloud: str
    calls: str
    port: int
    lease_seconds: float


class CountedCloud(FileCloud):
    """Cloud that writes each launch call down: its token and the process that makes it."""

    def __init__(self, path: Path, calls: Path) -> None:
        super().__init__(path, SystemClock(), devices=10_000)
        self._calls = calls

    def launch(self, request: LaunchRequest) -> CloudInstance:
        with self._calls.open("a") as file:
            file.write(f"{request.token} {os.getpid()}\n")
        return super().launch(request)


def run(options: Options) -> None:
    """Serve until another controller leads, or a signal ends this process."""
    os.environ["PGAPPNAME"] = process_name()  # the tests see in the database who writes
    cloud = CountedCloud(Path(options.cloud), Path(options.calls))
    deployment.open_providers = lambda *_: {"file": cloud}  # type: ignore[assignment,return-value]
    deployment.open_storage = lambda *_: None  # type: ignore[assignment]
    deployment.LighthouseHost = lambda *_: RecordedLighthouses()  # type: ignore[assignment,misc]
    settings = ServeSettings(
        state=Path(options.state),
        store_url=options.store_url,
        port=options.port,
        local=None,
        follows=True,
        store_lease_seconds=options.lease_seconds,
        controller=ControllerSettings(orphan_seconds=10.0, replan_seconds=2.0),
    )
    serve(settings)


if __name__ == "__main__":
    run(Options(**json.loads(sys.argv[1])))
