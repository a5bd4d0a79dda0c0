"""Calls of gcloud, if it is installed, and the server as a program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from tests.fakes.gcp.clients import HTTP, ZONE, ProjectClients

pytestmark = pytest.mark.gcp
ROOT = Path(__file__).parents[3]
Gcloud = Callable[..., str]


@pytest.fixture
def gcloud(clients: ProjectClients, tmp_path: Path) -> Gcloud:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    token = tmp_path / "token"
    token.write_text("any")
    variables = {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{clients.fake.url}/compute/v1/",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token),
        "CLOUDSDK_CONFIG": str(tmp_path / "config"),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_PROJECT": clients.name,
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }
    kept = {name: held for name, held in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        command = ["gcloud", "compute", "instances", *words]
        done = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "did not succeed" not in done.stderr, done.stderr
        return done.stdout

    return run


def test_gcloud_lists_and_deletes(clients: ProjectClients, gcloud: Gcloud) -> None:
    # Waits of its own: gcloud's are by the clock of the machine.
    clients.project.clock = SystemClock()
    clients.project.provision_seconds = clients.project.staging_seconds = 0.1
    clients.project.delete_seconds = 0.5
    for name in ("one", "two"):
        clients.wait(clients.insert(name, labels={"castor-job": name}))
    listed = json.loads(gcloud("list", "--format=json"))
    assert [(instance["name"], instance["status"]) for instance in listed] == [
        *(("one", "RUNNING"), ("two", "RUNNING"))
    ]
    only = gcloud("list", "--filter=labels.castor-job=two", "--format=value(name)")
    assert only.split() == ["two"]
    gcloud("delete", "one", f"--zone={ZONE}")
    assert clients.project.remaining() == ["two"]
    assert gcloud("describe", "two", f"--zone={ZONE}", "--format=value(status)") == "RUNNING\n"


def test_the_server_stands_by_itself() -> None:
    command = [sys.executable, "-m", "tests.fakes.gcp.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            reply = HTTP.get(f"{url}/compute/v1/projects/mine/zones")
            assert reply.json()["items"]
        finally:
            process.terminate()
