"""A real job whose agent and controller are of different versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Final

import psutil
import pytest

from autoscaler.domain.job import JobPhase
from tests.builders.waiting import wait_until
from tests.end_to_end.deployment import Deployment

ROOT: Final = Path(__file__).parents[2]
# The release before, or the commit that stands for it until it has a tag.
EARLIER: Final = ("v0.1.0", "0cf14f9f92e0014b5c40d2f80bd9625b452b3c8a")

# The agent of a version: its packages come first in its own path and in that of its children.
AGENT: Final = """
import os, sys
root = sys.argv.pop(1)
sys.path.insert(0, root)
os.environ["PYTHONPATH"] = root
from autoscaler.cli.app import main
import autoscaler
assert autoscaler.__path__[0].startswith(root), autoscaler.__path__
main()
"""
# The controller of a version, whose instances run such an agent.
CONTROLLER: Final = """
import json, sys
from pathlib import Path
import autoscaler
from autoscaler.main import ServeSettings, serve
from providers.local.settings import LocalSettings

state, root, agent = json.loads(sys.argv[1])
assert autoscaler.__path__[0].startswith(root), autoscaler.__path__
serve(ServeSettings(state=Path(state), port=0, local=LocalSettings(agent=tuple(agent))))
"""
# A command that restarts from its own checkpoint, reports no steps, and ends when it is told.
SCRIPT: Final = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("it drains", flush=True), sys.exit(0)))
print("it begins", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("it ends", flush=True)
"""
JOB: Final = """
name: {name}
command: [python, script.py, {end}]
objective: fastest
instances: {{min: 1, max: 1}}
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the product as the release before had it."""
    for revision in EARLIER:
        command = ["git", "archive", revision, "autoscaler", "providers", "hpo"]
        archived = subprocess.run(command, cwd=ROOT, capture_output=True)
        if archived.returncode == 0:
            directory = tmp_path_factory.mktemp("earlier")
            with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
                archive.extractall(directory, filter="data")
            return directory
    pytest.skip(f"this copy's git history has none of {', '.join(EARLIER)}")


class MixedDeployment(Deployment):
    """Deployment whose controller and agents are of the versions in two directories."""

    def __init__(self, directory: Path, controller: Path, agent: Path) -> None:
        super().__init__(directory, {"PYTHONPATH": str(controller)})
        self._controller = controller
        words = (sys.executable, "-P", "-c", AGENT, str(agent), "node", "--user-data")
        self._arguments = json.dumps([str(self.state), str(controller), words])

    def start(self) -> None:
        with (self._directory / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", CONTROLLER, self._arguments],
                env={**os.environ, "PYTHONPATH": str(self._controller)},
                stdout=log,
                stderr=log,
            )
        self.client().close()

    def submit_script(self, name: str) -> Path:
        """Submit a job that ends once the returned file exists."""
        directory = self._directory / name
        directory.mkdir()
        (directory / "script.py").write_text(SCRIPT)
        (directory / "job.yaml").write_text(JOB.format(name=name, end=directory / "end"))
        self.castor("submit", directory / "job.yaml")
        return directory / "end"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of a deployment; at the end kill its processes that a failure left."""
    yield tmp_path
    for process in psutil.process_iter(["cmdline"]):
        if any(str(tmp_path) in word for word in process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("new", ["controller", "agent"])
def test_a_job_runs_logs_drains_and_ends(directory: Path, earlier: Path, new: str) -> None:
    directories = (ROOT, earlier) if new == "controller" else (earlier, ROOT)
    deployment = MixedDeployment(directory, *directories)
    with deployment.running():
        client = deployment.client()

        def log_of(job: str) -> str:
            return "".join(part.text for part in client.logs(job, {}))

        end = deployment.submit_script("ends")
        wait_until(lambda: "it begins" in log_of("ends"), "the log", 90)
        assert client.job("ends").instances[0].phase in ("starting", "training")
        end.touch()
        wait_until(lambda: client.job("ends").phase.is_final, "the end of the job", 60)
        assert client.job("ends").phase is JobPhase.FINISHED, client.job("ends")
        assert "it ends" in log_of("ends")

        deployment.submit_script("stops")
        wait_until(lambda: "it begins" in log_of("stops"), "the log", 90)
        client.stop("stops")
        wait_until(lambda: client.job("stops").phase.is_final, "the end of the job", 60)
        assert client.job("stops").phase is JobPhase.STOPPED, client.job("stops")
        assert "it drains" in log_of("stops")
        client.close()
