from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from autoscaler.clock import SystemClock
from autoscaler.controller.foresight import Foresights
from autoscaler.policies.registry import create_policy
from autoscaler.service.app import Rooms, create_app
from autoscaler.service.assignments import Assignments, TrainingTimes
from autoscaler.service.authentication import Authentication, load_key
from autoscaler.service.checkpoints import TrialCheckpoints
from autoscaler.service.files import Bundles, Logs, TrialFiles
from autoscaler.service.nodes import Nodes
from autoscaler.service.studies import Studies
from autoscaler.service.submissions import Submissions
from autoscaler.service.views import Views
from autoscaler.wire.client import Client, NodeClient
from tests.controller.world import World

TOKEN = "the owner's token"


@dataclass
class Api:
    """The HTTP API over a world, really served."""

    world: World
    url: str
    authentication: Authentication
    directory: Path

    @property
    def client(self) -> Client:
        return Client(self.url, TOKEN)

    def stranger(self, token: str) -> Client:
        return Client(self.url, token)

    def node(self, token: str | None = None) -> NodeClient:
        return NodeClient(self.url, token)


@pytest.fixture
def api(tmp_path: Path, template: Path) -> Iterator[Api]:
    world = World(tmp_path, template=template)
    world.tick(1)
    store, status, clock = world.store, world.controller.status, world.clock
    authentication = Authentication(store, load_key(tmp_path / "secret.key"), clock)
    authentication.set_person("owner", TOKEN)
    assignments = Assignments(
        tmp_path / "jobs", authentication, TrainingTimes(), {"HF_TOKEN": "hidden-value"}
    )
    bundles = Bundles(tmp_path / "bundles", 1000)
    nodes = Nodes(store, authentication, assignments, status, lambda: None, clock, 1.0, 60.0, 90.0)
    rooms = Rooms(
        store=store,
        authentication=authentication,
        submissions=Submissions(store, bundles, assignments, status, lambda: None, clock),
        nodes=nodes,
        studies=Studies(
            store,
            TrialFiles(tmp_path / "files", 1000),
            lambda: None,
            clock,
            status,
            TrialCheckpoints(store, assignments),
        ),
        views=Views(store, status, assignments, "0"),
        bundles=bundles,
        logs=Logs(tmp_path / "logs"),
        fixed_sizes=lambda job: (),
        foresee=Foresights(store, status, create_policy("marginal"), 60.0, clock).of,
        clock=clock,
    )
    config = uvicorn.Config(
        create_app(rooms, "0"), port=0, log_level="error", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        SystemClock().sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Api(world, f"http://127.0.0.1:{port}", authentication, tmp_path)
    server.should_exit = True
    thread.join()
    store.close()
