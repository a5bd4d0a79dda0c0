"""Steps of a given length, plain, under DDP, or under the training library; prints their mean.

The mode `check` steps under the library, by itself, in blocks of BLOCK_STEPS steps. The check for
gradients that are not finite is on and off in turn; it prints the mean step of each block.

The model applies the same few layers many times over: that makes steps long, and leaves what is
synchronised at the 4 MB of a small network.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from workload import Noise, layers

from autoscaler.training import stepper
from autoscaler.training.session import session

MODE = os.environ["MODE"]
BATCH = int(os.environ["BATCH"])
REPEATS = int(os.environ["REPEATS"])
SECONDS = float(os.environ["SECONDS"])
LEAST_BLOCKS = 8
BLOCK_STEPS = int(os.environ.get("BLOCK_STEPS", "20"))


class Repeated(nn.Module):
    """One million parameters, used REPEATS times."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """The layers, again and again."""
        for _ in range(REPEATS):
            vectors = self.layers(vectors)
        return vectors


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same on every rank."""
    torch.manual_seed(0)
    model = Repeated()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def say(times: list[float]) -> None:
    """The mean over the later half, without the slowest hundredth: those are other processes."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return
    later = sorted(times[len(times) // 2 :])
    kept = later[: max(len(later) * 99 // 100, 1)]
    print(json.dumps({"step_seconds": sum(kept) / len(kept), "steps": len(times)}), flush=True)


def bare(distributed: bool) -> None:
    """The loop that everybody writes."""
    model, optimizer = model_and_optimizer()
    ranks = 1
    if distributed:
        cores = [int(core) for core in os.environ["CORES"].split(",")]
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"])]})
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
        ranks = dist.get_world_size()
    dataset = Noise()
    times: list[float] = []
    ends = time.monotonic() + SECONDS
    position = 0
    over = False
    while not over or len(times) < 20:
        began = time.monotonic()
        share = BATCH // ranks
        batch = torch.stack([dataset[(position + index) % len(dataset)] for index in range(share)])
        position += share
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.monotonic() - began)
        late = time.monotonic() >= ends
        over = stop_together(late) if distributed else late
    say(times)
    if distributed:
        # Ended the plain way, a gloo group may abort or hang the interpreter.
        dist.barrier()
        os._exit(0)


def stop_together(wants: bool) -> bool:
    """Ranks must stop at the same step; asked every twentieth step only."""
    stop_together.calls = getattr(stop_together, "calls", 0) + 1  # type: ignore[attr-defined]
    if stop_together.calls % 20:  # type: ignore[attr-defined]
        return False
    flag = torch.tensor([float(wants)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def castor() -> None:
    """The same under the training library."""
    model, optimizer = model_and_optimizer()
    times: list[float] = []
    began = last = time.monotonic()
    with session(model, optimizer, Noise(), batch_size=BATCH) as job:
        for batch in job.batches(epochs=10**9):
            job.step(job.model(batch).square().mean())
            now = time.monotonic()
            if job._parts.replica.agreement.replicas == int(os.environ["REPLICAS"]):
                times.append(now - last)
                if now - began > SECONDS and len(times) >= 20:
                    say(times)
                    sys.stdout.flush()
                    os._exit(0)
            else:
                began = now
            last = now


def no_check(parameters: Iterable[nn.Parameter]) -> bool:
    """Take every gradient for finite."""
    return True


def check() -> None:
    """Step under the library in blocks with and without the check, in the order ABBA."""
    model, optimizer = model_and_optimizer()
    checked = stepper.has_finite_gradients
    ends, blocks = time.monotonic() + SECONDS, list[dict[str, float | bool]]()
    steps, began = 0, time.monotonic()
    with session(model, optimizer, Noise(), batch_size=BATCH) as job:
        for batch in job.batches(epochs=10**9):
            job.step(job.model(batch).square().mean())
            steps += 1
            if steps % BLOCK_STEPS:
                continue
            is_checked = stepper.has_finite_gradients is checked
            seconds = (time.monotonic() - began) / BLOCK_STEPS
            blocks.append({"is_checked": is_checked, "step_seconds": seconds})
            is_enough = len(blocks) >= LEAST_BLOCKS and time.monotonic() >= ends
            if is_enough and len(blocks) % 4 == 0:
                break
            is_next_checked = len(blocks) % 4 in (0, 3)
            stepper.has_finite_gradients = checked if is_next_checked else no_check
            began = time.monotonic()
    print(json.dumps({"blocks": blocks}), flush=True)


MODES = {"plain": lambda: bare(False), "ddp": lambda: bare(True), "castor": castor, "check": check}

if __name__ == "__main__":
    MODES[MODE]()
