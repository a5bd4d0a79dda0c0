from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.job import JobSpec
from autoscaler.node.disk import Disk
from autoscaler.node.instance import Instance
from autoscaler.node.script.container_engine import Container, ContainerEngine
from autoscaler.node.script.orders import Orders
from autoscaler.node.state import Prepared
from providers.metadata import InstanceMetadata
from tests.node.controller import FakeController

ENGINE = ContainerEngine("docker")
JOB = JobSpec("job", ("sh", "work.sh"))
TRIAL = replace(JOB, study="sweep")
LAUNCHED = ["/venv/bin/python", "-P", "-m", "autoscaler.training.launch"]


@pytest.mark.parametrize(
    ("spec", "devices", "launcher"),
    [
        (JOB, 1, [*LAUNCHED, "1"]),
        (JOB, 2, [*LAUNCHED, "2"]),
        (TRIAL, 2, []),
        (replace(TRIAL, distributed=True), 2, [*LAUNCHED, "2"]),
        (replace(TRIAL, distributed=True), 1, []),
    ],
)
def test_a_rank_for_each_device_but_for_trials_that_run_in_one_process(
    tmp_path: Path, spec: JobSpec, devices: int, launcher: list[str]
) -> None:
    assert command_of(tmp_path, spec, devices) == [*launcher, "sh", "work.sh"]


def command_of(
    tmp_path: Path,
    spec: JobSpec,
    devices: int,
    python: str = LAUNCHED[0],
    image: str | None = None,
) -> list[str]:
    controller = FakeController(spec, tmp_path, {})
    controller.close()
    metadata = InstanceMetadata("i-1", (0, 1), tmp_path, tmp_path, "127.0.0.1", tmp_path / "no")
    instance = Instance("job-0", metadata, Disk(tmp_path), {"PATH": "/usr/bin:/bin"})
    orders = Orders(instance, controller.assignment, Prepared(python, image=image))
    return list(orders.training(devices).command)


def test_containers_share_the_control_group_that_the_instance_names() -> None:
    """Use the group that can't reach a cloud's metadata service."""
    container = Container("c", "image", Path("/work"), {}, {}, ())
    assert not any("cgroup" in option for option in container.options())
    inside = replace(container, parent="castor.slice")
    assert "--cgroup-parent=castor.slice" in inside.options()


def test_a_container_gets_the_fabric_of_an_instance_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EFA is used through devices, and pins memory."""
    monkeypatch.setattr("autoscaler.node.script.orders.find_engine", lambda path: ENGINE)
    monkeypatch.setattr("autoscaler.node.script.orders.FABRIC", tmp_path / "infiniband")
    spec = replace(JOB, image="registry/own:1")
    fabric = [f"--device={tmp_path / 'infiniband'}", "--ulimit=memlock=-1"]
    assert not {*fabric} & {*command_of(tmp_path, spec, 1, image=spec.image)}
    (tmp_path / "infiniband").mkdir()
    assert {*fabric} <= {*command_of(tmp_path, spec, 1, image=spec.image)}


def test_without_pytorch_a_script_of_one_process_runs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscaler.node.script.orders.find_spec", lambda name: None)
    assert command_of(tmp_path, JOB, 1, python=sys.executable) == ["sh", "work.sh"]
    assert command_of(tmp_path, JOB, 2, python=sys.executable)[-3:] == ["2", "sh", "work.sh"]
    assert command_of(tmp_path, JOB, 1)[:4] == LAUNCHED, "its setup may bring PyTorch"
