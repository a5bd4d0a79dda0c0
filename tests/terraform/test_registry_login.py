"""Passwords of private registries, from each cloud's start to the agent."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.metadata import NO_REGISTRIES, Registries, read_metadata
from tests.terraform.machine import CLOUDS, Machine, started_on

HOST = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


@pytest.fixture(params=sorted(CLOUDS))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield from started_on(CLOUDS[request.param], tmp_path)


def registries_on(machine: Machine) -> Registries:
    """Return what the agent reads after the start."""
    assert machine.start() == 0
    lines = (machine.root / "run/castor/environment").read_text().splitlines()
    return read_metadata(dict(line.split("=", 1) for line in lines)).registries


def test_the_agent_gets_a_password_from_outside_of_the_slice_of_jobs(machine: Machine) -> None:
    machine.variables = {"registries": f"{HOST}/team us-docker.pkg.dev/p/team"}
    registries = registries_on(machine)
    assert registries.names == (f"{HOST}/team", "us-docker.pkg.dev/p/team")
    assert (
        registries.user
        == {"mount-s3": "AWS", "gcsfuse": "oauth2accesstoken"}[machine.cloud.mounter]
    )
    # A transient unit lies in system.slice, which reaches the metadata service.
    assert registries.password[0] == "systemd-run"
    printed = subprocess.run(
        [machine.root / "bin/systemd-run", *registries.password[1:], HOST],
        env={
            "PATH": f"{machine.root / 'bin'}:{os.environ['PATH']}",
            "CALLS": "/dev/null",
            "FAILING": "nothing",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == "leave-1"
    program = machine.root / "run/castor/registry-password"
    assert program.stat().st_mode & 0o077 == 0


def test_without_named_registries_the_agent_has_none(machine: Machine) -> None:
    assert registries_on(machine) is NO_REGISTRIES
