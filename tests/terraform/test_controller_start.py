"""The start of the controller's host on GCE, run here as that of an instance is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terraform.machine import GCE, Machine, started_on


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    disk = tmp_path / "dev/disk/by-id/google-castor-state"
    disk.parent.mkdir(parents=True)
    disk.touch()
    yield from started_on(GCE, tmp_path)


def test_the_controller_serves_the_pools_from_its_own_disk(host: Machine) -> None:
    assert host.start("controller.sh") == 0
    state = f"{host.root}/var/lib/castor"
    served = host.unit("castor.service")
    assert served["ExecStart"] == (
        f"{host.root}/opt/castor/bin/castor serve --state {state} --host 10.80.0.7 --port 8470 "
        "--pools gs://castor-test/pools.json --fleet-usd 500 --job-usd 50 --study-usd none "
        "--lease 45m --policy marginal"
    )
    assert served["RequiresMountsFor"] == state
    assert served["KillMode"] == "process", "lighthouses outlive the service"
    mount = host.unit("var-lib-castor.mount")
    assert mount["What"] == f"{host.root}/dev/disk/by-id/google-castor-state"
    assert mount["Where"] == state
    assert [call for call in host.calls if call.startswith("systemctl start")] == [
        "systemctl start var-lib-castor.mount",
        "systemctl start castor.service",
    ]
    installed = next(call for call in host.calls if call.startswith("pip install"))
    assert installed.endswith("[server,gcp,training]")


def test_the_controller_gives_jobs_the_secrets_that_its_operator_allows(host: Machine) -> None:
    host.variables = {
        "secrets": "/etc/castor/secrets",
        "secret_variables": "HF_TOKEN,WANDB_API_KEY",
    }
    assert host.start("controller.sh") == 0
    served = host.unit("castor.service")
    directory = host.root / "etc/castor/secrets"
    assert served["ExecStart"].endswith(
        f" --secrets {directory} --secret-variables HF_TOKEN,WANDB_API_KEY"
    )
    assert served["EnvironmentFile"] == f"-{host.root}/etc/castor/secrets.env"
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_disk_is_formatted_once(host: Machine) -> None:
    host.failing = "blkid"
    assert host.start("controller.sh") == 0
    assert any(call.startswith("mkfs.ext4 ") for call in host.calls)
    host.failing = "nothing"
    (host.root / "calls").unlink()
    assert host.start("controller.sh") == 0, "it runs at each boot"
    assert not any(call.startswith("mkfs.ext4 ") for call in host.calls)


@pytest.mark.parametrize("failing", ["start var-lib-castor.mount", "pip install"])
def test_a_controller_without_its_state_or_castor_does_not_serve(
    host: Machine, failing: str
) -> None:
    host.failing = failing
    assert host.start("controller.sh") != 0
    assert "systemctl start castor.service" not in host.calls
