"""Script that does not train but sends the messages of a training, as its environment says."""

from __future__ import annotations

import os
import sys
import time

from autoscaler.clock import SystemClock
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.training.channel import AgentConnection

steps = int(os.environ.get("STEPS", "1000000"))
fail_at = int(os.environ.get("FAIL_AT", "-1"))
print(f"attempt on {os.environ['CASTOR_DEVICES']}", flush=True)
if os.environ.get("LOCAL_RANK", "0") != "0":
    time.sleep(600)
channel = AgentConnection(os.environ["CASTOR_SOCKET"], SystemClock())
setup = channel.setup()
if setup.attempt > 1:
    fail_at = -1


def note(*words: object) -> None:
    with open("trace", "a") as trace:
        print(*words, file=trace)


note("start", os.getpid())
for step in range(1, steps + 1):
    time.sleep(0.02)
    if step == fail_at and "DIVERGES" in os.environ:
        channel.diverged()
        channel.close()
    if os.environ.get("EXITS_AT") == str(step):
        channel.close()
        sys.exit(0)
    if step == fail_at:
        raise ValueError(f"step {step} is one too many")
    channel.stepped(step, step)
    interval = channel.directive.checkpoint_interval_seconds
    channel.report(
        TrainingReport(
            step=step,
            epoch=0,
            progress_examples=32.0 * step,
            total_examples=32.0 * steps,
            batch=Batch(32, 32, 0),
            bounds=BatchBounds(32, 32, 32, False),
            replicas=1,
            devices=1,
            learning_rate=0.1,
            parameter_bytes=4,
            observations=(StepObservation("cpu-core", 1, 1, 32, 0, 0.02, 0.0, 1),),
            metrics={
                "loss": float("nan"),
                "step": float(step),
                **({} if interval is None else {"interval": interval}),
            },
        )
    )
    if channel.directive.drain and "DEAF" not in os.environ:
        time.sleep(float(os.environ.get("SAVE_SECONDS", "0")))
        note("left", step)
        channel.left()
        channel.close()
        sys.exit(0)
if "DONE" in os.environ and setup.attempt == 1:
    channel.done()
    time.sleep(float(os.environ["DONE"]))
else:
    channel.finished()
channel.close()
