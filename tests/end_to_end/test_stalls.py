"""A rank that hangs for ever is found and named, and its job paused with its checkpoint.

The job's end would take the 90 s that a script has to leave, which a hung one uses up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from autoscaler.domain.activity import STALL
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import JobView
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.local_job import LocalJob, kill

IMPATIENT: Final = Path(__file__).parent / "impatient"
WAIT_SECONDS: Final = 240.0

TRAIN: Final = """
import os, sys, time, torch
from pathlib import Path
from torch.utils.data import TensorDataset
from autoscaler.training import session

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hangs = Path(sys.argv[1])
with session(model, optimizer, data, batch_size=16) as job:
    for step, (x, y) in enumerate(job.batches(epochs=100000)):
        # the agent knows how long a step takes from the second report, a second after the first
        if step > 200 and hangs.exists():
            try:  # one rank takes the file, and does nothing any more
                hangs.rename(hangs.with_name(os.environ["CASTOR_INSTANCE"]))
            except FileNotFoundError:
                pass
            else:
                print("it hangs", flush=True)
                time.sleep(100000)
        job.step((job.model(x) - y).square().mean())
        time.sleep(0.05)
"""

JOB: Final = """
name: hanging
command: [python, train.py, {hangs}]
objective: fastest
instances: {{min: 2, max: 2}}
checkpoint: {{interval: 1s}}
stalls: pause
"""


@pytest.mark.timeout(600)
def test_a_rank_that_hangs_is_named_and_its_job_paused(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    hangs = shared / "hangs"
    (tmp_path / "job.yaml").write_text(JOB.format(hangs=hangs))
    path = os.pathsep.join(filter(None, (str(IMPATIENT), os.environ.get("PYTHONPATH"))))
    with Deployment(tmp_path, {"PYTHONPATH": path}).running() as deployment:
        deployment.castor("submit", tmp_path / "job.yaml")
        job = LocalJob(deployment, "hanging", WAIT_SECONDS)
        job.wait_for_instances(2)
        job.wait_for(lambda: _saved_step(job.view()) > 0, "a checkpoint of two ranks")
        hangs.touch()
        job.wait_for(lambda: job.view().phase is not JobPhase.RUNNING, "the job to be paused")
        paused = job.view()
        for held in paused.instances:  # a script that hangs would outlive the deployment
            kill(held)
    (cloud_id,) = (path.name for path in shared.iterdir())
    (hung,) = (held.id for held in paused.instances if held.cloud_id == cloud_id)
    events = {event.kind: event.text for event in paused.events}
    assert events[STALL].startswith(f"hung replica: {hung} of 2: no step for ")
    assert paused.phase in (JobPhase.STOPPING, JobPhase.STOPPED)
    assert paused.cause is not None and paused.cause.startswith("paused, it does not learn (hung")
    assert "castor resume hanging continues from its newest checkpoint" in paused.cause
    assert _saved_step(paused) > 0


def _saved_step(job: JobView) -> int:
    """Return the step of the newest checkpoint; 0 without one."""
    return 0 if job.report is None else job.report.checkpoint.step or 0
