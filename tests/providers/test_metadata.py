from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.errors import NotFound
from providers.metadata import InstanceMetadata, Registries, read_metadata, reclaim_notice

METADATA = InstanceMetadata(
    instance_id="i-1",
    devices=(0, 3),
    directory=Path("/somewhere/disk"),
    cache_directory=Path("/somewhere/cache"),
    bind_address="127.0.0.1",
    reclaim_notice_file=Path("/somewhere/reclaim-notice"),
)


def test_an_instance_reads_what_it_was_told() -> None:
    assert read_metadata(METADATA.environment()) == METADATA
    counted = replace(METADATA, accelerators=8, container_parent="castor.slice")
    assert read_metadata(counted.environment()) == counted
    registries = Registries(("a.example/team", "b.example"), "robot", ("run", "a b"))
    private = replace(METADATA, registries=registries)
    assert read_metadata(private.environment()) == private
    unused = {"CASTOR_REGISTRIES": "", "CASTOR_REGISTRY_USER": "robot"}
    assert read_metadata({**METADATA.environment(), **unused}) == METADATA


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("a.example/team/train:1", "a.example"),
        ("a.example/team:1", "a.example"),
        ("a.example/team@sha256:0", "a.example"),
        ("a.example/teams/train:1", None),
        ("b.example/any/thing", "b.example"),
        ("b.example.evil/any/thing", None),
        ("b.example:5000/any", None),
        ("docker.io/a.example/team", None),
        ("ubuntu", None),
    ],
)
def test_a_registry_covers_its_repositories_only(image: str, host: str | None) -> None:
    assert Registries(("a.example/team", "b.example"), "robot", ()).host(image) == host


@pytest.mark.parametrize("missing", sorted(METADATA.environment()))
def test_what_no_provider_started_is_no_instance(missing: str) -> None:
    environment = METADATA.environment()
    del environment[missing]
    with pytest.raises(NotFound, match=f"{missing} is not set"):
        read_metadata(environment)


def test_devices_are_numbers() -> None:
    with pytest.raises(NotFound, match="CASTOR_ACCELERATORS=-1: expected the number of GPUs"):
        read_metadata({**METADATA.environment(), "CASTOR_ACCELERATORS": "-1"})
    with pytest.raises(NotFound, match="CASTOR_DEVICES=gpu"):
        read_metadata({**METADATA.environment(), "CASTOR_DEVICES": "gpu"})


def test_a_notice_is_none_until_it_is_given(tmp_path: Path) -> None:
    environment = METADATA.environment()
    environment["CASTOR_RECLAIM_NOTICE"] = str(tmp_path / "notice")
    metadata = read_metadata(environment)
    assert reclaim_notice(metadata) is None
    (tmp_path / "notice").write_text("1795216738.8078082")
    assert reclaim_notice(metadata) == 1795216738.8078082


@pytest.mark.parametrize("text", [b"", b"17952167e", b"nan", b"\xff\xfe"])
def test_a_notice_that_can_not_be_read_is_not_there_yet(
    text: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = replace(METADATA, reclaim_notice_file=tmp_path / "notice")
    metadata.reclaim_notice_file.write_bytes(text)
    assert [reclaim_notice(metadata) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1, "it is said, and once"
    metadata.reclaim_notice_file.write_text("1795216738.5")
    assert reclaim_notice(metadata) == 1795216738.5


@pytest.mark.parametrize("module", ["providers.metadata", "providers.local.machine"])
def test_what_starts_with_an_instance_imports_the_standard_library_only(module: str) -> None:
    tell = f"import sys; old = set(sys.modules); import {module}; print(*set(sys.modules) - old)"
    told = subprocess.run(
        [sys.executable, "-P", "-c", tell], capture_output=True, text=True, check=True
    )
    foreign = {name.partition(".")[0] for name in told.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"autoscaler", "providers"}
