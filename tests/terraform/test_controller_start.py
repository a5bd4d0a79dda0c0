"""The start of the controller's host on each cloud, run here as that of an instance is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.terraform.machine import EC2, GCE, Cloud, Machine, started_on


@dataclass(frozen=True)
class Host:
    """Disk and pools of a cloud's host, which differ between clouds."""

    cloud: Cloud
    disk: str
    pools: str


HOSTS = {
    "ec2": Host(
        EC2,
        "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0",
        "ssm:/castor/test/pools",
    ),
    "gce": Host(GCE, "google-castor-state", "gs://castor-test/pools.json"),
}


@pytest.fixture(params=sorted(HOSTS))
def kind(request: pytest.FixtureRequest) -> Host:
    return HOSTS[request.param]


@pytest.fixture
def disk(kind: Host, tmp_path: Path) -> Path:
    """A new disk."""
    disk = tmp_path / "dev/disk/by-id" / kind.disk
    disk.parent.mkdir(parents=True)
    disk.write_bytes(bytes(1 << 20))
    return disk


@pytest.fixture
def host(kind: Host, disk: Path, tmp_path: Path) -> Iterator[Machine]:
    yield from started_on(kind.cloud, tmp_path)


def test_the_controller_serves_the_pools_from_its_own_disk(
    host: Machine, kind: Host, disk: Path
) -> None:
    assert host.start_host() == 0
    state = f"{host.root}/var/lib/castor"
    served = host.unit("castor.service")
    assert served["ExecStart"] == (
        f"{host.root}/opt/castor/bin/castor serve --state {state} --host 10.80.0.7 --port 8470 "
        f"--pools {kind.pools} --fleet-usd 500 --job-usd 50 --study-usd none "
        "--lease 45m --policy marginal --tls-cert auto"
    )
    assert served["RequiresMountsFor"] == state
    assert served["KillMode"] == "process", "lighthouses outlive the service"
    assert (served["WatchdogSec"], served["NotifyAccess"]) == ("180", "main")
    mount = host.unit("var-lib-castor.mount")
    assert mount["What"] == str(disk)
    assert mount["Where"] == state
    assert [call for call in host.calls if call.startswith("systemctl start")] == [
        "systemctl start --no-block castor-start.service",
        "systemctl start var-lib-castor.mount",
        "systemctl start castor.service",
    ]
    installed = next(call for call in host.calls if call.startswith("pip install"))
    assert installed.endswith("/requirements-controller.txt")


def test_the_controller_is_a_user_who_writes_its_state_alone(host: Machine) -> None:
    assert host.start_host() == 0
    served, state = host.unit("castor.service"), f"{host.root}/var/lib/castor"
    assert (served["User"], served["Group"], served["NoNewPrivileges"]) == (
        *("castor", "castor", "yes"),
    )
    assert (served["ProtectSystem"], served["ReadWritePaths"]) == ("strict", state)
    calls = host.calls
    made = next(call for call in calls if call.startswith("useradd --system --user-group"))
    assert calls.index(made) < calls.index(f"chown -R castor:castor {state}")
    assert calls.index(f"chown -R castor:castor {state}") < calls.index(
        "systemctl start castor.service"
    )


def test_a_start_that_fails_is_tried_again_at_each_boot_and_until_it_succeeds(
    host: Machine,
) -> None:
    """Retry a start without a route to the package index."""
    host.failing = "pip install"
    assert host.start_host() != 0
    assert "systemctl start castor.service" not in host.calls
    unit = host.unit("castor-start.service")
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("on-failure", "0")
    assert unit["WantedBy"] == "multi-user.target"
    assert unit["StandardError"] == "journal+console", "somebody has to find out"
    assert "systemctl enable castor-start.service" in host.calls
    host.failing = "nothing"
    assert host.run_unit("castor-start.service") == 0
    assert host.calls[-1] == "systemctl start castor.service"


def test_a_later_boot_installs_nothing(host: Machine) -> None:
    assert host.start_host() == 0
    (host.root / "calls").unlink()
    assert host.run_unit("castor-start.service") == 0
    assert not [call for call in host.calls if call.startswith(("pip", "python3 -m venv"))]
    assert host.calls[-1] == "systemctl start castor.service"


def test_the_controller_gives_jobs_the_secrets_that_its_operator_allows(host: Machine) -> None:
    host.variables = {
        "secrets": "/etc/castor/secrets",
        "secret_variables": "HF_TOKEN,WANDB_API_KEY",
    }
    assert host.start_host() == 0
    served = host.unit("castor.service")
    directory = host.root / "etc/castor/secrets"
    assert served["ExecStart"].endswith(
        f" --secrets {directory} --secret-variables HF_TOKEN,WANDB_API_KEY --tls-cert auto"
    )
    assert served["EnvironmentFile"] == f"-{host.root}/etc/castor/secrets.env"
    assert directory.stat().st_mode & 0o7777 == 0o2750, "files there are of the group castor"
    assert f"chgrp castor {directory}" in host.calls


@pytest.mark.parametrize(
    "option",
    ["--insecure", "--tls-cert cert.pem --tls-key key.pem", "--public-url https://castor.example"],
)
def test_the_operator_chooses_another_encryption(host: Machine, option: str) -> None:
    host.variables = {"serve_options": f"--fleet-usd 500 {option}"}
    assert host.start_host() == 0
    assert host.unit("castor.service")["ExecStart"].endswith(f" --fleet-usd 500 {option}")


def test_a_disk_is_formatted_once(host: Machine) -> None:
    host.failing = "blkid"
    assert host.start_host() == 0
    assert any(call.startswith("mkfs.ext4 ") for call in host.calls)
    host.failing = "nothing"
    (host.root / "calls").unlink()
    assert host.start_host() == 0, "it runs at each boot"
    assert not any(call.startswith("mkfs.ext4 ") for call in host.calls)


def test_a_disk_that_can_not_be_read_is_not_formatted(host: Machine, disk: Path) -> None:
    """blkid fails for many reasons: only a disk full of zeros is new."""
    disk.write_bytes(bytes(1024) + b"superblock" + bytes(1 << 20))
    host.failing = "blkid"
    assert host.start_host() != 0
    assert not any(call.startswith("mkfs.ext4 ") for call in host.calls)
    (said,) = host.console
    assert f"{disk} has no file system that can be read, and is not new" in said


@pytest.mark.parametrize("failing", ["start var-lib-castor.mount", "pip install"])
def test_a_controller_without_its_state_or_castor_does_not_serve(
    host: Machine, failing: str
) -> None:
    host.failing = failing
    assert host.start_host() != 0
    assert "systemctl start castor.service" not in host.calls
