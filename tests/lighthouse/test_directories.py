from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings


@pytest.fixture
def host(tmp_path: Path) -> LighthouseHost:
    settings = LighthouseSettings(engine=Engine.ROSTER)
    return LighthouseHost(tmp_path / "state" / "lighthouses", "127.0.0.1", SystemClock(), settings)


@pytest.mark.parametrize("name", ["{}/victim", "../../victim", "..", ".", "", "a\0b"])
def test_a_job_that_is_called_as_a_path_has_no_lighthouse_there(
    host: LighthouseHost, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.tex").write_text("important")
    with pytest.raises(Unavailable):
        host.ensure(name.format(tmp_path))
    host.release(name.format(tmp_path))
    assert [path.name for path in victim.iterdir()] == ["thesis.tex"]


def test_a_job_may_have_the_name_of_a_file_of_lighthouses(host: LighthouseHost) -> None:
    assert host.ensure("lock").startswith("roster:")
    assert set(host.running()) == {"lock"}
    host.release("lock")
    assert host.running() == {}


def test_a_lighthouse_of_before_its_engine_was_renamed_is_found_again(
    host: LighthouseHost, tmp_path: Path
) -> None:
    address = host.ensure("job")
    order = tmp_path / "state" / "lighthouses" / "job" / "order.json"
    order.write_text(order.read_text().replace('"roster"', '"restart"'))
    assert host.ensure("job") == address
    assert host.running() == {"job": address}
    host.release("job")


def test_the_end_of_a_lighthouse_removes_its_own_files_alone(
    host: LighthouseHost, tmp_path: Path
) -> None:
    host.ensure("job")
    directory = tmp_path / "state" / "lighthouses" / "job"
    (directory / "notes.txt").write_text("somebody's")
    host.release("job")
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    host.ensure("job")
    (directory / "notes.txt").unlink()
    host.release("job")
    assert not directory.exists()
