"""Time from the start of the node agent to the first step of a job, by part, on this machine.

    python benchmarks/agent_start.py [--rounds 5] [--json]

The agent runs as on an instance of a cloud (`castor node`), with a stand-in for the controller on
the loopback. The script is a job's: it imports PyTorch and Castor's training library, and makes a
step of a small model on the CPU. The output has the wall-clock seconds of the first round, whose
files may not be in the page cache, and medians of the others. A cloud's order, boot, driver and
CUDA's start are not measured (docs/images.md).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.job import JobSpec
from providers.metadata import InstanceMetadata
from tests.builders.waiting import wait_until
from tests.node.controller import FakeController

PARTS = ("agent joins", "script starts", "imports", "first step", "whole")
SCRIPT = """
import time
print("began", time.time(), flush=True)
import torch
import autoscaler.training
assert autoscaler.training.session
print("imported", time.time(), flush=True)
model = torch.nn.Linear(256, 256)
model(torch.ones(64, 256)).sum().backward()
torch.optim.SGD(model.parameters(), 0.1).step()
print("stepped", time.time(), flush=True)
"""


def measure(directory: Path) -> dict[str, float]:
    """Return the seconds of each part of one start."""
    spec = JobSpec("start", (sys.executable, "-P", "-c", SCRIPT))
    controller = FakeController(spec, directory / "checkpoints", {})
    user_data = directory / "user-data"
    user_data.write_text(
        json.dumps({"controller": controller.url, "join_token": "once", "instance": "start-0"})
    )
    metadata = InstanceMetadata(
        "i-1", (0,), directory / "disk", directory / "cache", "127.0.0.1", directory / "no"
    )
    castor = (sys.executable, "-P", "-m", "autoscaler.cli.app", "node", "--user-data")
    ordered = time.time()
    agent = subprocess.Popen(
        ["/bin/sh", "-c", '"$@" & wait', "machine", *castor, str(user_data)],
        env={**os.environ, **metadata.environment()},
        cwd=directory,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the agent ends its parent
    )
    try:
        wait_until(lambda: controller.joins, "the join")
        joined = time.time()
        wait_until(lambda: any(line.is_complete for line in controller.reports), "the end")
        pairs = [line.split() for line in controller.log.splitlines()]
        began, imported, stepped = (float(words[1]) for words in pairs if len(words) == 2)
    finally:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        controller.close()
    marks = (ordered, joined, began, imported, stepped)
    parts = [after - before for before, after in itertools.pairwise(marks)]
    return dict(zip(PARTS, [*parts, stepped - ordered], strict=True))


def main() -> None:
    """Print the medians of all rounds but the first, and the first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="starts after the first")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds + 1):
        with tempfile.TemporaryDirectory() as directory:
            rounds.append(measure(Path(directory)))
    medians = {part: statistics.median(line[part] for line in rounds[1:]) for part in PARTS}
    if arguments.json:
        print(json.dumps({"first": rounds[0], "median": medians}))
        return
    print(f"{'seconds':15}{'first':>8}{'median':>8}")
    for part in PARTS:
        print(f"{part:15}{rounds[0][part]:8.2f}{medians[part]:8.2f}")


if __name__ == "__main__":
    main()
