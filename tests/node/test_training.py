"""The agent with all that is real: lighthouse, torchrun, the training library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.checkpoint import step_of
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.lighthouse.host import LighthouseHost
from autoscaler.store.repositories.reports import failed
from autoscaler.training.state.checkpoint import Checkpoints
from tests.node.controller import FakeController
from tests.node.site import Site, wait_until

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "regression.py"


@pytest.fixture
def lighthouse(tmp_path: Path) -> Iterator[str | None]:
    host = LighthouseHost(tmp_path / "lighthouses", "127.0.0.1", SystemClock())
    yield host.ensure("job")
    host.release("job")


def served(site: Site, tmp_path: Path, lighthouse: str | None) -> FakeController:
    """The controller of a job that trains for longer than any test."""
    site.settings = {}
    files = tmp_path / "files"
    files.mkdir()
    shutil.copy(SCRIPT, files)
    variables = {"TRACE": "trace", "EPOCHS": "100000", "STEP_SECONDS": "0.01"}
    spec = JobSpec("job", ("python", "regression.py"), environment=variables)
    controller = site.serve(spec, files=files)
    controller.offer_lighthouse(lighthouse)
    return controller


def test_a_real_job_trains_on_two_ranks_and_goes_on_with_one(
    site: Site, tmp_path: Path, lighthouse: str | None
) -> None:
    controller = served(site, tmp_path, lighthouse)
    controller.want(devices_used=2)
    instance = site.launch(devices=2)
    instance.wait_for(InstancePhase.TRAINING)
    wait_until(lambda: controller.training and controller.training[-1].step > 20, "steps")
    assert controller.training[-1].devices == 2
    listening = {
        connection.laddr.ip
        for process in instance.processes("")
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}, "torchrun's own store listens everywhere by itself"
    controller.want(devices_used=1)
    wait_until(lambda: controller.training[-1].devices == 1, "one rank")
    steps = [report.step for report in controller.training]
    assert steps == sorted(steps), "it went on from its checkpoint"
    assert not controller.failures
    noise = [line for line in controller.log.splitlines() if line.strip()]
    assert noise == [], "a job's log is the job's"


def test_a_loss_that_runs_out_of_memory_on_one_rank_fits_after_one_start_more(
    site: Site, tmp_path: Path
) -> None:
    """The script raises it in its own code, for more than 8 examples: half of a rank's share."""
    site.settings = {}
    files = tmp_path / "files"
    files.mkdir()
    shutil.copy(SCRIPT.with_name("memory.py"), files)
    variables = {"PHASE": "loss", "FITS": "8", "FROM": "5", "ON_RANK": "1"}
    variables |= {"TRACE": "trace", "EPOCHS": "2", "STEP_SECONDS": "0.01"}
    spec = JobSpec("job", ("python", "memory.py"), environment=variables)
    controller = site.serve(spec, files=files)
    controller.want(devices_used=2)
    instance = site.launch(devices=2)
    wait_until(lambda: controller.failures, "the first start's end")
    (failure,) = controller.failures
    assert failure.device_limit == ("cpu-core", 8)
    assert failure.cause.endswith("; the next start takes at most 8 examples at once on a device")
    record = JobRecord("job", 1, spec, JobPhase.RUNNING, submitted_seconds=0.0)
    limited = failed(record, failure).spec
    controller.assignment = replace(controller.assignment, spec=limited)
    controller.want(attempt=2)
    wait_until(lambda: instance.is_complete, "the end of training")
    assert controller.reports[-1].attempt == 2
    assert len(controller.failures) == 1


@pytest.mark.aws
def test_a_job_whose_controller_is_lost_saves_its_last_step_and_its_instance_ends(
    site: Site, tmp_path: Path, lighthouse: str | None
) -> None:
    controller = served(site, tmp_path, lighthouse)
    controller.lease_seconds = 2.0
    instance = site.launch()
    wait_until(lambda: controller.training and controller.training[-1].step > 20, "steps")
    controller.is_away = True
    wait_until(lambda: instance.is_off, "the end of the lease")
    told = controller.training[-1].step
    steps = [json.loads(line)["step"] for line in instance.trace().splitlines()]
    newest = Checkpoints(tmp_path / "checkpoints", 2, SystemClock()).newest()
    assert steps[-1] > told, "training went on without the controller"
    assert newest is not None and step_of(newest.name) == steps[-1] + 1, "nothing is lost"
