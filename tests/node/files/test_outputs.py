"""Files of a job's script that an agent keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.domain.output import MANIFEST_NAME, OutputManifest, OutputSpec
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects, always
from autoscaler.wire.codec import decode
from tests.node.controller import FakeController
from tests.node.site import STEADY, Site, wait_until

WRITE = """
import os, sys, time
from pathlib import Path
Path("runs").mkdir()
Path("runs/metrics.csv").write_text("1,2,3")
Path("best.pt").write_text("best")
Path("__pycache__").mkdir(exist_ok=True)
Path("__pycache__/x.pyc").write_text("cache")
os.symlink("/etc/hostname", "stolen")
{end}
"""
SPEAK = """
import os, time
from dataclasses import replace
from pathlib import Path
from autoscaler.clock import SystemClock
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.report import CheckpointStatus, TrainingReport
from autoscaler.training.channel import AgentConnection

channel = AgentConnection(os.environ["CASTOR_SOCKET"], SystemClock())
channel.setup()
report = TrainingReport(
    step=1, epoch=0, progress_examples=32.0, total_examples=64.0, batch=Batch(32, 32, 0),
    bounds=BatchBounds(32, 32, 32, False), replicas=1, devices=1, learning_rate=0.1,
    parameter_bytes=4, checkpoint=CheckpointStatus(step=1),
)
Path("best.pt").write_text("best of step 1")
old = time.time() - 60
os.utime("best.pt", (old, old))
channel.stepped(1, 1)
if os.environ.get("DECIDES"):
    channel.report(report)
while not os.path.exists("go"):
    time.sleep(0.02)
channel.done()
channel.close()
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    (files / "packed.txt").write_text("packed")
    return files


def kept(folder: Path, instance: str = "job-0") -> dict[str, str]:
    """The outputs of an instance, by path."""
    path = folder / instance / MANIFEST_NAME
    try:
        manifest = decode(OutputManifest, path.read_bytes())
        files = {file.path: folder / instance / file.sha256 for file in manifest.files}
        return {name: file.read_text() for name, file in files.items()}
    except (FileNotFoundError, SpecError):
        return {}


def notes(controller: FakeController) -> list[str]:
    return [note for report in controller.reports for note in report.notes]


@pytest.mark.parametrize(
    ("end", "is_complete"), [("", True), ("raise ValueError('no')", False)], ids=["well", "failed"]
)
def test_files_of_a_script_are_kept_when_it_has_ended(
    site: Site, files: Path, tmp_path: Path, end: str, is_complete: bool
) -> None:
    (files / "write.py").write_text(WRITE.format(end="time.sleep(2.5)\n" * bool(end) + end))
    controller = site.serve(JobSpec("job", ("python", "write.py")), files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete or controller.failures, "the end")
    assert instance.is_complete is is_complete
    assert kept(tmp_path / "outputs") == {"runs/metrics.csv": "1,2,3", "best.pt": "best"}


def test_files_are_in_storage_before_the_end_is_told(
    site: Site, files: Path, tmp_path: Path
) -> None:
    (files / "write.py").write_text(WRITE.format(end=""))
    controller = site.serve(JobSpec("job", ("python", "write.py")), files=files)
    place = f"file://{tmp_path}/bucket/jobs/job"
    storage = Objects(place, always(StorageGrant(place)))
    controller.keep_files_in(storage.place)
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    folder = tmp_path / "bucket" / "jobs" / "job" / "outputs"
    assert kept(folder) == {"runs/metrics.csv": "1,2,3", "best.pt": "best"}
    assert not (tmp_path / "outputs").exists()


def test_a_checkpoint_brings_a_copy_while_the_script_runs(
    site: Site, files: Path, tmp_path: Path
) -> None:
    (files / "speak.py").write_text(SPEAK)
    spec = JobSpec("job", ("python", "speak.py"), environment={"DECIDES": "1"})
    site.serve(spec, files=files)
    instance = site.launch()
    wait_until(lambda: kept(tmp_path / "outputs"), "the copy")
    assert kept(tmp_path / "outputs") == {"best.pt": "best of step 1"}
    instance.kill_agent()
    (instance.work / "late.txt").write_text("late")
    (instance.work / "go").touch()
    wait_until(lambda: "late.txt" in kept(tmp_path / "outputs"), "the last copy of a later agent")
    assert kept(tmp_path / "outputs")["best.pt"] == "best of step 1"


def test_an_instance_that_does_not_speak_for_the_job_keeps_nothing(
    site: Site, files: Path, tmp_path: Path
) -> None:
    (files / "speak.py").write_text(SPEAK)
    controller = site.serve(JobSpec("job", ("python", "speak.py")), files=files)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    (instance.work / "go").touch()
    wait_until(lambda: any(report.is_done for report in controller.reports), "its part is done")
    assert kept(tmp_path / "outputs") == {}


def test_a_script_without_steps_is_copied_at_each_interval(
    site: Site, files: Path, tmp_path: Path
) -> None:
    end = "old = time.time() - 60\nos.utime('best.pt', (old, old))\ntime.sleep(600)"
    (files / "write.py").write_text(WRITE.format(end=end))
    controller = site.serve(JobSpec("job", ("python", "write.py")), files=files)
    controller.assignment = replace(controller.assignment, checkpoint_interval_seconds=0.5)
    site.launch()
    wait_until(lambda: "best.pt" in kept(tmp_path / "outputs"), "a copy")


def test_an_instance_that_is_stopped_or_taken_back_keeps_its_outputs(
    site: Site, tmp_path: Path
) -> None:
    site.serve(JobSpec("job", STEADY))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    instance.reclaim()
    instance.wait_for(InstancePhase.DRAINED)
    assert "left" in kept(tmp_path / "outputs")["trace"]


def test_outputs_over_the_limit_are_told_with_the_way_out(
    site: Site, files: Path, tmp_path: Path
) -> None:
    (files / "write.py").write_text(WRITE.format(end="Path('huge').write_text('x' * 100)"))
    spec = JobSpec("job", ("python", "write.py"), outputs=OutputSpec(maximum_bytes=20))
    controller = site.serve(spec, files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert kept(tmp_path / "outputs").keys() == {"best.pt", "runs/metrics.csv"}
    told = wait_until(lambda: [n for n in notes(controller) if "outputs" in n], "the note")
    assert "outputs are not copied: huge; together they are above the limit of 20" in told[0]
    assert "raise outputs.limit" in told[0]


def test_a_place_that_can_not_be_written_is_told_and_holds_nothing_up(
    site: Site, files: Path, tmp_path: Path
) -> None:
    (files / "write.py").write_text(WRITE.format(end=""))
    controller = site.serve(JobSpec("job", ("python", "write.py")), files=files)
    (tmp_path / "outputs").write_text("no directory")
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    wait_until(
        lambda: any("latest outputs are not copied" in n for n in notes(controller)), "the note"
    )


def test_outputs_that_nobody_wants_are_not_kept(site: Site, files: Path, tmp_path: Path) -> None:
    (files / "write.py").write_text(WRITE.format(end=""))
    spec = JobSpec("job", ("python", "write.py"), outputs=OutputSpec(patterns=()))
    site.serve(spec, files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert not (tmp_path / "outputs").exists()
