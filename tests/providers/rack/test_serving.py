"""`castor serve --pools` with a provider of an outside package, from its pools to a job's end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import JobView
from providers.metadata import InstanceMetadata
from tests.end_to_end.deployment import Deployment
from tests.providers.rack.server import TOKEN, Machine, Rack
from tests.providers.rack.test_provider import POOLS
from tests.training.fleet import wait_until

CASTOR = (sys.executable, "-P", "-m", "autoscaler.cli.app")
JOB = """\
name: digits
command: [bash, -c, "until test -e {end}; do sleep 0.1; done"]
objective: fastest
instances: {{max: 1, offers: [small]}}
"""


@pytest.fixture
def rack() -> Iterator[Rack]:
    found = Rack(SystemClock())
    yield found
    found.close()


def with_package(directory: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path}


def started(job: JobView) -> list[str]:
    """The offers of the instances on which the job's command runs."""
    held = job.instances
    return [instance.offer for instance in held if instance.phase is InstancePhase.STARTING]


def agent_of(machine: Machine, disk: Path) -> subprocess.Popen[bytes]:
    """Start the agent as the image of a rack's machines does, from the user data alone."""
    disk.mkdir()
    (disk / "user-data").write_text(machine.user_data)
    metadata = InstanceMetadata(
        instance_id=machine.id,
        devices=(0,),
        directory=disk,
        cache_directory=disk / "cache",
        bind_address="127.0.0.1",
        reclaim_notice_file=disk / "reclaim",
    )
    own = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with (disk / "console.log").open("wb") as console:
        return subprocess.Popen(
            [*CASTOR, "node", "--user-data", str(disk / "user-data")],
            env={**own, **metadata.environment(), "HOME": str(disk)},
            stdout=console,
            stderr=console,
        )


def test_a_job_runs_on_a_machine_that_is_started_and_stopped(
    rack: Rack, installed_rack: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    pools = tmp_path / "rack.yaml"
    pools.write_text(POOLS.format(url=rack.url, token_file=tmp_path / "token"))
    (tmp_path / "job.yaml").write_text(JOB.format(end=tmp_path / "end"))
    environment = with_package(installed_rack)
    with Deployment(tmp_path, environment, str(pools)).running() as deployment:
        deployment.castor("submit", tmp_path / "job.yaml")
        (machine,) = wait_until(lambda: rack.started, "a machine that is started", 60)
        assert (machine.type, machine.labels["castor:job"]) == ("small", "digits")
        agent = agent_of(machine, tmp_path / "disk")
        try:
            client = deployment.client()
            wait_until(
                lambda: started(client.job("digits")) == ["rack/small"], "the job starts", 90
            )
            (tmp_path / "end").touch()
            wait_until(lambda: not client.job("digits").instances, "the machine is stopped", 90)
            job = client.job("digits")
        finally:
            agent.kill()
            agent.wait()
        assert (job.phase, rack.alive(), rack.stopped) == (JobPhase.FINISHED, [], [machine.id])
        assert len(rack.started) == 1 and job.spent_usd > 0


def test_a_provider_that_is_not_installed_is_refused_before_anything_begins(
    rack: Rack, tmp_path: Path
) -> None:
    pools = tmp_path / "rack.yaml"
    pools.write_text(POOLS.format(url=rack.url, token_file=tmp_path / "token"))
    state = tmp_path / "state"
    done = subprocess.run(
        [*CASTOR, *("serve", "--pools", pools, "--fleet-usd", "none", "--state", state)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 'cloud: "rack" is unknown: write aws or gcp' in done.stderr
    assert done.returncode == 1 and not state.exists()
