"""Results of a job and the way back to it, as a person has them: real processes, real training."""

from __future__ import annotations

import json
import time
from pathlib import Path

from autoscaler.clock import SystemClock
from autoscaler.training.state.checkpoint import Checkpoints
from tests.cli.conftest import Terminal
from tests.cli.test_commands import job_file

TRAIN = """
import os, time
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from autoscaler.training import session

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
with session(model, optimizer, data, batch_size=16) as job:
    is_resumed = job.progress_examples > 0
    print("begins at", job.progress_examples, flush=True)
    Path("runs").mkdir(exist_ok=True)
    for epoch in job.epochs(20):
        for x, y in job.batches():
            job.step((job.model(x) - y).square().mean())
            time.sleep(0.0 if is_resumed else 0.1)
        torch.save(model.state_dict(), "runs/last.tmp")
        os.replace("runs/last.tmp", "runs/last.pt")
Path("accuracy.txt").write_text("0.97")
"""


def wait_for_step(terminal: Terminal, job: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        report = json.loads(terminal.castor("status", job, "--json").stdout)["report"]
        if report is not None and report["step"] > 20:
            return
        time.sleep(0.1)
    raise AssertionError(terminal.castor("logs", job).stdout)


def test_a_stopped_job_is_fetched_and_resumed(terminal: Terminal, tmp_path: Path) -> None:
    path = job_file(tmp_path, "good", "python train.py", TRAIN)
    submitted = terminal.castor("submit", path)
    assert submitted.returncode == 0, submitted.stderr
    refused = terminal.castor("resume", "good")
    assert refused.returncode == 1
    assert "only one that has ended can be resumed" in refused.stderr
    wait_for_step(terminal, "good")
    assert terminal.castor("stop", "good", "--wait").returncode == 0
    first = tmp_path / "first"
    fetched = terminal.castor("fetch", "good", "--to", first, "--checkpoint")
    assert fetched.returncode == 0, fetched.stderr
    assert (first / "runs" / "last.pt").exists()
    assert not (first / "accuracy.txt").exists()
    assert not (first / "train.py").exists()
    (checkpoint,) = first.glob("step-*")
    assert (checkpoint / "rest.pt").exists()
    assert f"checkpoint: {checkpoint}; docs/outputs.md shows how to load it" in fetched.stdout
    assert Checkpoints(first, 1, SystemClock()).newest() == checkpoint, "a session reads it"
    resumed = terminal.castor("resume", "good", "--wait", "--json")
    assert resumed.returncode == 0, resumed.stderr
    job = json.loads(resumed.stdout)
    assert (job["id"], job["phase"]) == ("good.2", "finished")
    log = terminal.castor("logs", "good.2").stdout
    begun = float(log.split("begins at")[1].split()[0])
    assert begun == int(checkpoint.name.removeprefix("step-")) * 16 > 0
    listed = json.loads(terminal.castor("fetch", "good", "--list", "--json").stdout)
    assert {file["path"] for file in listed["files"]} == {"accuracy.txt", "runs/last.pt"}
    again = terminal.castor("fetch", "good", "--to", first)
    assert again.returncode == 1
    assert "--force replaces them" in again.stderr
    forced = terminal.castor("fetch", "good", "--to", first, "--force")
    assert forced.returncode == 0, forced.stderr
    assert (first / "accuracy.txt").read_text() == "0.97"
    complete = terminal.castor("resume", "good")
    assert complete.returncode == 1
    assert "complete" in complete.stderr
