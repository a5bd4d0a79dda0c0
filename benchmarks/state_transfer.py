"""Speed of the transfer of a state to a joining replica, and its peak memory.

    python benchmarks/state_transfer.py [--gigabytes 1.5] [--sources 1 2] [--device cpu|cuda]

Processes of one machine, over the loopback: replicas that serve a model with Adam's state, and one
without that state that receives it. A state has the model's weights and Adam's two averages. Peak
memory of the receiver is its process's peak during the transfer less its memory before it had a
model, as a multiple of the state's size. Linux only. Prints a table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.clock import SystemClock
from autoscaler.training.members.state_fetch import Fetch
from autoscaler.training.members.state_server import StateServer
from autoscaler.training.state.training_state import Counters, TrainingState

TOKEN, KEY = "secret", "state"
WIDTH = 4096
COPIES = 3  # weights, and two averages of the same size


def training(gigabytes: float, device: str, seed: int, steps: int) -> TrainingState:
    """Return a replica's state of about so many gigabytes, after so many steps."""
    torch.manual_seed(seed)
    layers = max(1, round(gigabytes * 1e9 / (COPIES * 4 * WIDTH * WIDTH)))
    model = torch.nn.ModuleList(
        torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(layers)
    )
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.ones(1, device=device).expand_as(parameter)
        optimizer.step()
        optimizer.zero_grad()
    return TrainingState(model, optimizer, None, Counters(step=steps))


def serve(gigabytes: float, device: str, channel: Connection) -> None:
    """Serve a state until a message arrives on the channel."""
    state = training(gigabytes, device, seed=0, steps=1)
    server = StateServer("127.0.0.1", TOKEN)
    server.serve(KEY, state.state_dict())
    channel.send((server.address, checksum(state)))
    channel.recv()


def checksum(state: TrainingState) -> float:
    """Return the sum of all weights, in 64 bits."""
    return sum(float(weight.double().sum()) for weight in state.state_dict()["model"].values())


def memory_bytes(kind: str) -> int:
    """Return a memory figure of this process from the kernel: VmRSS, or VmHWM, its peak."""
    text = Path("/proc/self/status").read_text()
    match = re.search(rf"{kind}:\s+(\d+) kB", text)
    assert match is not None
    return int(match[1]) * 1024


def receive(gigabytes: float, device: str, sources: list[str], channel: Connection) -> None:
    """Receive a state; send its size, the seconds, the peak memory and a checksum."""
    bare_bytes = memory_bytes("VmRSS")
    state = training(gigabytes, device, seed=1, steps=0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    began_seconds = time.monotonic()
    fetch = Fetch(KEY, TOKEN, lambda described: state.reception(described, True), SystemClock())
    fetch.run(sources, threading.Event())
    state.load_state_dict(fetch.complete())
    seconds = time.monotonic() - began_seconds
    peak_bytes = memory_bytes("VmHWM") - bare_bytes
    channel.send((fetch.size_bytes, seconds, peak_bytes, checksum(state)))


def measure(gigabytes: float, device: str, count: int) -> tuple[float, float, float]:
    """Return the size of a state in GB, the seconds of its transfer, and the peak memory in GB.

    Raises:
        AssertionError: the received state differs from the served one.
    """
    context = multiprocessing.get_context("spawn")
    servers = []
    for _ in range(count):
        near, far = context.Pipe()
        process = context.Process(target=serve, args=(gigabytes, device, far), daemon=True)
        process.start()
        servers.append((process, near))
    served = [near.recv() for _, near in servers]
    near, far = context.Pipe()
    addresses = [address for address, _ in served]
    receiver = context.Process(
        target=receive, args=(gigabytes, device, addresses, far), daemon=True
    )
    receiver.start()
    size_bytes, seconds, peak_bytes, received = near.recv()
    receiver.join()
    for process, channel in servers:
        channel.send("end")
        process.join()
    assert received == served[0][1], "the received state differs from the served one"
    return size_bytes / 1e9, seconds, peak_bytes / 1e9


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--sources", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, {arguments.device}, torch {torch.__version__}\n")
    print("| sources | state | time | GB/s | peak memory of the receiver, in states |")
    print("|---|---|---|---|---|")
    for count in arguments.sources:
        size, seconds, peak = measure(arguments.gigabytes, arguments.device, count)
        cells = (
            f"{size:.2f} GB",
            f"{seconds:.2f} s",
            f"{size / seconds:.2f}",
            f"{peak / size:.2f}",
        )
        print(f"| {count} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
