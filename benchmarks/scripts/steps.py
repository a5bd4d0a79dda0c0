"""Steps of a given length, under bare DDP or under the training library, in blocks.

In the modes `ddp` and `castor` blocks of BLOCK_STEPS steps are made when the benchmark asks for
one at the socket GATE; the answer is the seconds that the block took.

The mode `check` steps under the library, by itself, in blocks of BLOCK_STEPS steps. The check for
gradients that are not finite is on and off in turn; it prints the mean step of each block.

The model applies the same few layers many times over: that makes steps long, and leaves what is
synchronised at the 4 MB of a small network.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from workload import Noise, layers

from autoscaler.training import session
from autoscaler.unix_socket import connect

MODE = os.environ["MODE"]
BATCH = int(os.environ["BATCH"])
REPEATS = int(os.environ["REPEATS"])
SECONDS = float(os.environ.get("SECONDS", "0"))
LEAST_BLOCKS = 8
BLOCK_STEPS = int(os.environ.get("BLOCK_STEPS", "20"))


class Repeated(nn.Module):
    """One million parameters, used REPEATS times."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Add the layers' output to their input, again and again.

        Without the sums gradients would shrink to denormal numbers, which are slow to multiply.
        """
        for _ in range(REPEATS):
            vectors = vectors + self.layers(vectors) / REPEATS
        return vectors


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same on every rank."""
    torch.manual_seed(0)
    model = Repeated()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


class Gate:
    """The socket at which this process waits between blocks of steps."""

    def __init__(self) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        connect(self._connection, Path(os.environ["GATE"]))
        self._lines = self._connection.makefile()
        self._steps = 0
        self._began: float | None = None

    def pass_step(self) -> None:
        """Count a step; at the end of a block answer, and wait for the next."""
        if self._began is not None:
            self._steps += 1
            if self._steps % BLOCK_STEPS:
                return
            seconds = time.monotonic() - self._began
            self._connection.sendall(f"{seconds}\n".encode())
        if not self._lines.readline():
            # Ended the plain way, a gloo group may abort or hang the interpreter.
            os._exit(0)
        self._began = time.monotonic()


def bare() -> None:
    """Train by the loop that everybody writes."""
    model, optimizer = model_and_optimizer()
    cores = [int(core) for core in os.environ["CORES"].split(",")]
    os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"])]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
    dataset, gate = Noise(), Gate()
    share, position = BATCH // dist.get_world_size(), 0
    while True:
        gate.pass_step()
        batch = torch.stack([dataset[(position + index) % len(dataset)] for index in range(share)])
        position += share
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def castor() -> None:
    """Train the same under the training library, in blocks once all replicas are there."""
    model, optimizer = model_and_optimizer()
    replicas, gate = int(os.environ["REPLICAS"]), None
    with session(model, optimizer, Noise(), batch_size=BATCH) as job:
        for batch in job.batches(epochs=10**9):
            if gate is None and job._parts.replica.agreement.replicas == replicas:
                gate = Gate()
            if gate is not None:
                gate.pass_step()
            job.step(job.model(batch).square().mean())


def no_check(parameters: Iterable[nn.Parameter]) -> bool:
    """Take every gradient for finite."""
    return True


def check() -> None:
    """Step under the library in blocks with and without the check, in the order ABBA."""
    model, optimizer = model_and_optimizer()
    ends, blocks = time.monotonic() + SECONDS, list[dict[str, float | bool]]()
    steps, began = 0, time.monotonic()
    with session(model, optimizer, Noise(), batch_size=BATCH) as job:
        reducer = job._parts.reducer
        checked, is_checked = reducer.are_finite, True
        for batch in job.batches(epochs=10**9):
            job.step(job.model(batch).square().mean())
            steps += 1
            if steps % BLOCK_STEPS:
                continue
            seconds = (time.monotonic() - began) / BLOCK_STEPS
            blocks.append({"is_checked": is_checked, "step_seconds": seconds})
            is_enough = len(blocks) >= LEAST_BLOCKS and time.monotonic() >= ends
            if is_enough and len(blocks) % 4 == 0:
                break
            is_checked = len(blocks) % 4 in (0, 3)
            reducer.are_finite = checked if is_checked else no_check  # type: ignore[method-assign]
            began = time.monotonic()
    print(json.dumps({"blocks": blocks}), flush=True)


MODES = {"ddp": bare, "castor": castor, "check": check}

if __name__ == "__main__":
    MODES[MODE]()
