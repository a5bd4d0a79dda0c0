"""Project of the fake for one test, with a virtual clock and Google's own clients."""

from __future__ import annotations

import itertools
import uuid
from functools import cache
from typing import Any, Final

import httpx
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from autoscaler.clock import VirtualClock
from tests.fakes.gcp.server import FakeGcp

START_SECONDS: Final = 1_790_000_000.0
ZONE: Final = "us-central1-a"
TEMPLATE: Final = "castor-gpu"
# Client for calls that Google's clients would not make. It is shared, because creation is slow.
HTTP: Final = httpx.Client(trust_env=False)
_NUMBERS: Final = itertools.count()
Body = dict[str, Any]


class ProjectClients:
    """New project that holds only a template, and clients for it."""

    def __init__(self, fake: FakeGcp) -> None:
        self.fake = fake
        self.name = f"castor-{next(_NUMBERS)}"
        self.clock = VirtualClock(START_SECONDS)
        self.project = fake.front.renew(self.name, self.clock)
        self.project.templates[TEMPLATE] = {"name": TEMPLATE, "properties": properties()}

    @property
    def instances(self) -> Any:
        return _client(compute_v1.InstancesClient, self.fake.url)

    @property
    def operations(self) -> Any:
        return _client(compute_v1.ZoneOperationsClient, self.fake.url)

    def insert(self, name: str, request_id: str | None = None, **fields: Any) -> Any:
        """Insert an instance from the template; return the operation."""
        request = compute_v1.InsertInstanceRequest(
            project=self.name,
            zone=ZONE,
            request_id=request_id,
            source_instance_template=f"global/instanceTemplates/{TEMPLATE}",
            instance_resource=compute_v1.Instance(name=name, **fields),
        )
        return self.instances.insert_unary(request=request)

    def running(self, name: str, **fields: Any) -> Any:
        """Insert an instance, wait for the operation, and return the instance."""
        assert not self.wait(self.insert(name, **fields)).error.errors
        return self.instances.get(project=self.name, zone=ZONE, instance=name)

    def wait(self, operation: Any) -> Any:
        """Wait for an operation.

        The client of operations does so, because other clients would ask the real Compute Engine.
        """
        return self.operations.wait(project=self.name, zone=ZONE, operation=operation.name)

    def delete(self, name: str) -> Any:
        return self.instances.delete_unary(project=self.name, zone=ZONE, instance=name)

    def listed(self, expression: str = "") -> list[str]:
        request = {"project": self.name, "zone": ZONE, "filter": expression}
        return [instance.name for instance in self.instances.list(request=request)]

    def status(self, name: str) -> str:
        existing = self.instances.get(project=self.name, zone=ZONE, instance=name)
        return str(existing.status)

    def send(self, verb: str, path: str, body: Any = None, **query: str) -> httpx.Response:
        """Send any call of Compute Engine, valid or not; `path` is below the project."""
        url = f"{self.fake.url}/compute/v1/projects/{self.name}/{path}".rstrip("/")
        return HTTP.request(verb, url, json=body, params=query)


def properties(**changes: Any) -> Body:
    """Return a template's properties: one L4 on spot, deleted when preempted."""
    image = "projects/debian-cloud/global/images/family/debian-12"
    disk = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}
    return {
        "machineType": "g2-standard-4",
        "disks": [disk],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
        "labels": {"castor-deployment": "test"},
        "metadata": {"items": [{"key": "startup-script", "value": "#!/bin/bash"}]},
        **changes,
    }


def instance(name: str, **changes: Any) -> Body:
    """Return the body of an insert without a template."""
    machine_type = f"zones/{ZONE}/machineTypes/g2-standard-4"
    return {**properties(), "name": name, "machineType": machine_type, **changes}


def request_id() -> str:
    return str(uuid.uuid4())


@cache
def _client(kind: Any, url: str) -> Any:
    """Return a client; clients are cached, because creation is slower than most tests here."""
    options = ClientOptions(api_endpoint=url)
    return kind(credentials=AnonymousCredentials(), client_options=options)
