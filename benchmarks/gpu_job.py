"""A job under a real controller whose instances share one GPU.

    python benchmarks/gpu_job.py [--device cuda|cpu] [--model 124M] [--batch 8] [--seconds 30]

`castor serve` runs with the provider of this machine, whose instances are process trees. The job
trains a GPT in bfloat16 on the GPU with one instance, then with two that share it (gradients by
gloo through host memory), then with one again; it is stopped, resumed from its checkpoint and
stopped. Checks: steps continue from the checkpoint, and the ledger equals the bill of the local
cloud. A job that does not take a size ends the script with an error. At each size the record has
the measured goodput and the goodput that the fitted model predicts. `seconds_to_size` is the time
from the command to the first report of that size. Prints a record in JSON; the exit status is 1 if
a check fails.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_instances import print_and_exit

from autoscaler.cli.local_cloud import billed_usd
from autoscaler.clock import SystemClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec
from autoscaler.supervision import SupervisedController, cores_here
from autoscaler.wire.client import Client
from autoscaler.wire.messages import Change, JobView, Resumption
from tests.builders.waiting import wait_until

SCRIPT = Path(__file__).parent / "scripts" / "gpt_job.py"
PATIENCE_SECONDS = 240.0
POLL_SECONDS = 0.1
OFFER = "local-small"


class Watch:
    """The job as the controller reports it, and the wait for its states."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self.job = job

    def view(self) -> JobView:
        """Return the job's state now."""
        return self._client.job(self.job)

    def wait(self, holds: Callable[[JobView], bool], event: str) -> JobView:
        """Return the job's state once `holds` is true of it; fail after `PATIENCE_SECONDS`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(view := self.view()):
            if time.monotonic() > deadline or view.phase.is_final:
                raise SystemExit(f"no {event}: {view.phase}, {view.cause}, {view.last_lines}")
            time.sleep(POLL_SECONDS)
        return view

    def resize(self, instances: int) -> dict[str, float]:
        """Give the job exactly `instances`; return the seconds until all of them train."""
        began = time.monotonic()
        self._client.change(self.job, Change(instances=exactly(instances)))
        self.wait(lambda view: trains(view, instances), f"training on {instances} instances")
        return {"seconds_to_size": time.monotonic() - began}

    def measure(self, seconds: float) -> dict[str, Any]:
        """Return medians of goodput over `seconds`, measured and predicted."""
        measured, predicted = [], []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            view = self.view()
            report = view.report
            if report and report.goodput_measured and view.goodput_predicted:
                measured.append(report.goodput_measured)
                predicted.append(view.goodput_predicted)
            time.sleep(POLL_SECONDS)
        return {"goodput_measured": _median(measured), "goodput_predicted": _median(predicted)}


def exactly(instances: int) -> InstanceBounds:
    """Return bounds that leave a job no other size."""
    return InstanceBounds(instances, instances, (OFFER,), spot=False)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def trains(view: JobView, instances: int) -> bool:
    """Return whether exactly so many instances of the job train together."""
    is_training = [held.phase is InstancePhase.TRAINING for held in view.instances]
    return (
        len(is_training) == instances
        and all(is_training)
        and view.report is not None
        and view.report.replicas == instances
    )


def run(client: Client, arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, bool]]:
    """Train at each size; return the record, and the checks by their names."""
    variables = {
        "DEVICE": arguments.device,
        "MODEL": arguments.model,
        "BATCH": str(arguments.batch),
    }
    began = time.monotonic()
    job = client.submit(
        JobSpec(
            "gpt",
            (sys.executable, "-P", str(SCRIPT)),
            environment={**variables, "PYTHONPATH": str(SCRIPT.parent)},
            batch=BatchSpec(initial=arguments.batch),
            instances=exactly(1),
        )
    )
    watch = Watch(client, job.id)
    watch.wait(lambda view: trains(view, 1), "first step")
    sizes = [{"instances": 1, "seconds_to_size": time.monotonic() - began}]
    sizes[-1] |= watch.measure(arguments.seconds)
    for instances in (2, 1):
        sizes.append({"instances": instances, **watch.resize(instances)})
        sizes[-1] |= watch.measure(arguments.seconds)
    report = watch.view().report
    client.stop(watch.job)
    stopped = watch.wait(lambda view: view.phase.is_final, "end of the stopped job")
    saved = stopped.report.checkpoint.step if stopped.report else None
    began = time.monotonic()
    again = Watch(client, client.resume(watch.job, Resumption()).id)
    resumed = again.wait(lambda view: trains(view, 1), "first step after the checkpoint")
    resumed_seconds = time.monotonic() - began
    client.drain()
    wait_until(lambda: not client.fleet().instances, "the end of all instances", PATIENCE_SECONDS)
    record = {
        "sizes": sizes,
        "parameter_bytes": report.parameter_bytes if report else None,
        "state_bytes": report.state_bytes if report else None,
        "checkpoint_step": saved,
        "resumed_step": resumed.report.step if resumed.report else None,
        "seconds_to_resumed_step": resumed_seconds,
        "logs": [part.text for part in client.logs(watch.job, {})][:3],
    }
    checks = {
        "steps continue from the checkpoint": bool(
            saved and resumed.report and resumed.report.step >= saved
        ),
    }
    return record, checks


def main() -> None:
    """Run the job, print the record, and exit with 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", choices=("tiny", "124M"), default="124M")
    parser.add_argument("--batch", type=int, default=8, help="examples in a step")
    parser.add_argument("--seconds", type=float, default=30.0, help="time at each size")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="castor-gpu-") as directory:
        clock = SystemClock()
        options = ("--checkpoint-seconds", "20")
        controller = SupervisedController(Path(directory), cores_here()[:4], clock, options)
        try:
            with controller.running() as client:
                record, checks = run(client, arguments)
                ledger, bill = client.costs().total_usd, billed_usd(Path(directory), client, clock)
        finally:
            controller.terminate_all()
    checks["ledger and bill are equal"] = abs(ledger - bill) < Decimal("0.01")
    facts = {
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "model": arguments.model,
        "batch": arguments.batch,
    }
    print_and_exit(facts, {"checks": checks, **record})


if __name__ == "__main__":
    main()
