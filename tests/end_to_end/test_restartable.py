"""An untouched DDP script as a restartable job: it grows, loses an instance, shrinks and ends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import yaml

from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import InstanceView, JobView
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.local_job import EXAMPLES, LocalJob, copy_example, kill

WAIT_SECONDS: Final = 240.0
SLOW: Final = Path(__file__).parents[1] / "scripts" / "slow"
STEPS: Final = 4000
PAUSE_SECONDS: Final = 0.0503  # of each step, until all changes of the size are made
SAVE_EVERY: Final = 100
UNCOUNTED: Final = 100  # steps in 5 s: a checkpoint counts once it was unchanged and is copied
TOLERANCE: Final = 1e-4
_START: Final = re.compile(r"start at step (\d+): world of (\d+)")
_STEP: Final = re.compile(r"step (\d+) of")
_LOSS: Final = re.compile(r"final loss ([\d.]+)")


@dataclass(frozen=True)
class Restart:
    """One start of the script, and the last step that it printed; both as in its log."""

    step: int
    world: int
    last_step: int


def logs_of(deployment: Deployment) -> list[Path]:
    """Return the logs of all instances."""
    return [log for log in (deployment.state / "logs").rglob("*") if log.is_file()]


def restarts_of(deployment: Deployment) -> list[Restart]:
    """Return the starts of the script in all logs, by their first step."""
    restarts = [part for log in logs_of(deployment) for part in restarts_in(log)]
    return sorted(restarts, key=lambda restart: (restart.step, restart.last_step))


def restarts_in(log: Path) -> list[Restart]:
    restarts: list[Restart] = []
    for line in log.read_text(errors="replace").splitlines():
        if started := _START.search(line):
            step = int(started[1])
            restarts.append(Restart(step, int(started[2]), step))
        elif (stepped := _STEP.search(line)) and restarts:
            last = restarts.pop()
            restarts.append(Restart(last.step, last.world, int(stepped[1])))
    return restarts


def job_file(directory: Path, hurry: Path) -> Path:
    """Copy the example, and return its job file: one instance, and slow until `hurry` exists."""
    path = copy_example("restartable", directory)
    document = yaml.safe_load(path.read_text())
    options = f"--steps {STEPS} --save-every {SAVE_EVERY} --pause {PAUSE_SECONDS}"
    document["command"] = f"python train.py {options}"
    document["instances"] |= {"min": 1, "max": 1}
    document["objective"] = "fastest"
    document["environment"] = {
        **document.get("environment", {}),
        "PYTHONPATH": str(SLOW),
        "PAUSE": str(PAUSE_SECONDS),
        "SLOW_UNTIL": str(hurry),
    }
    document["total_progress"] = STEPS * document["batch"]["initial"]
    path.write_text(yaml.safe_dump(document))
    return path


def undisturbed_loss(directory: Path) -> float:
    """Return the final loss of the same script alone."""
    shutil.copy(EXAMPLES / "restartable" / "train.py", directory)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1"]
    options = ["train.py", "--steps", str(STEPS), "--save-every", str(SAVE_EVERY)]
    done = subprocess.run(
        [*torchrun, *options],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    loss = _LOSS.search(done.stdout)
    assert loss is not None
    return float(loss[1])


def wait_for_world(job: LocalJob, count: int, without: str | None = None) -> list[InstanceView]:
    """Wait until exactly `count` instances are left, and a world of them makes progress."""

    def is_world(view: JobView) -> bool:
        return view.report is not None and view.report.replicas == count

    return job.wait_for_instances(count, without, is_world)


@pytest.mark.timeout(1200)
def test_a_script_without_a_session_is_resized_by_restarts(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "alone").mkdir()
    hurry = shared / "hurry"
    with Deployment(tmp_path, {}).running() as deployment:
        deployment.castor("submit", job_file(tmp_path, hurry))
        job = LocalJob(deployment, "restartable", WAIT_SECONDS)
        wait_for_world(job, 1)
        job.set_size(2)
        lost, _ = wait_for_world(job, 2)
        kill(lost)
        wait_for_world(job, 2, without=lost.id)
        job.set_size(1)
        wait_for_world(job, 1)
        hurry.touch()
        ended, restarts = job.wait_for_end(), restarts_of(deployment)
        text = "\n".join(log.read_text(errors="replace") for log in logs_of(deployment))
    assert ended.phase is JobPhase.FINISHED, ended.cause
    assert ended.attempt == 1, "lost instances and restarts cost no retry"
    assert {restart.world for restart in restarts} == {1, 2}
    for before, after in pairwise(restarts):
        repeated = before.last_step - after.step
        assert repeated <= SAVE_EVERY + UNCOUNTED, "at most one interval is repeated"
    losses = _LOSS.findall(text)
    assert len(losses) == 1
    assert float(losses[0]) == pytest.approx(undisturbed_loss(tmp_path / "alone"), abs=TOLERANCE)
