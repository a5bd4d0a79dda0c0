"""Pause of training for a checkpoint of a model that is sharded over ranks.

    python benchmarks/checkpoint_pause.py [--ranks 2] [--millions 100] [--saves 6] [--json]
    python benchmarks/checkpoint_pause.py --device cuda

Each rank is a process of this machine with its shard of a model and AdamW's state, in 32 bits. The
pause is the time of `TrainingState.save` in the training thread, on the slower rank: the check for
weights that are not finite, the plan, and the copy to memory that is kept between checkpoints. The
rest runs in a thread and is `background`. `memcpy` copies as many bytes from one tensor to another
on all ranks at once, before each save. On a CPU these are the thread's processor seconds, which
other work on the cores lengthens little; on GPUs (one for each rank, locked memory) seconds.
Medians of all saves after the first. A session reserves the memory of the copies before the first;
`--no-reserve` leaves that out. Prints a table, or JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.clock import SystemClock
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.gradients.parts import local_part
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.host_copies import HostCopies
from autoscaler.training.state.training_state import Counters, TrainingState

WIDTH = 2048


@dataclass(frozen=True, slots=True)
class Setting:
    """Arguments of the benchmark."""

    ranks: int
    millions: float
    saves: int
    device: str
    reserves: bool
    directory: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements of one rank: bytes of its part, and seconds of each save."""

    part_bytes: int
    memcpy_seconds: list[float]
    pause_seconds: list[float]
    copy_seconds: list[float]
    background_seconds: list[float]


def sharded_state(setting: Setting, device: torch.device) -> TrainingState:
    """Return the state of a sharded model after one step of AdamW."""
    mesh = init_device_mesh(setting.device, (setting.ranks,))
    layers = max(1, round(setting.millions * 1e6 / WIDTH**2))
    model = nn.Sequential(
        *(nn.Linear(WIDTH, WIDTH, bias=False, device=device) for _ in range(layers))
    )
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return TrainingState(model, optimizer, None, Counters(step=1))


def seconds_on(device: str) -> float:
    """Return this thread's processor seconds for a CPU, and a clock's seconds for a GPU."""
    return time.thread_time() if device == "cpu" else time.perf_counter()


class TimedCopies(HostCopies):
    """Maker of copies that measures the seconds of the last ones."""

    def __init__(self, device: str) -> None:
        super().__init__(kept_device=device)
        self._device = device
        self.seconds = 0.0

    def copy(self, tree: Any) -> Any:
        """Copy as `HostCopies` does."""
        began = seconds_on(self._device)
        copied = super().copy(tree)
        self.seconds = seconds_on(self._device) - began
        return copied


class Memcpy:
    """Copies of so many bytes to memory that was used before."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self._device = device.type
        self._source = torch.ones(size_bytes, dtype=torch.uint8, device=device)
        is_gpu = device.type == "cuda"
        self._target = torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=is_gpu)

    def seconds(self) -> float:
        """Copy on all ranks at once; return the seconds."""
        dist.barrier()
        began = seconds_on(self._device)
        self._target.copy_(self._source)
        return seconds_on(self._device) - began


def measure(rank: int, setting: Setting, store: str, results: Connection) -> None:
    """Measure on one rank, and send its figures."""
    device = torch.device("cpu")
    if setting.device == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    backend = "cpu:gloo,cuda:nccl" if setting.device == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=setting.ranks
    )
    state = sharded_state(setting, device)
    copies = TimedCopies(setting.device)
    checkpoints = Checkpoints(
        Path(setting.directory),
        1,
        SystemClock(),
        ranks=InstanceRanks(dist.group.WORLD),
        is_sharded=True,
        host_copies=copies,
    )
    tensors = (leaf for leaf in tree_leaves(state.state_dict()) if isinstance(leaf, torch.Tensor))
    part_bytes = sum(local_part(tensor).nbytes for tensor in tensors)
    memcpy = Memcpy(part_bytes, device)
    if setting.reserves:
        state.reserve(checkpoints)
        time.sleep(2.0)  # as a session trains meanwhile
    copies_seconds, pauses, copied, written = [], [], [], []
    for _ in range(setting.saves):
        copies_seconds.append(memcpy.seconds())
        state.counters.step += 1
        dist.barrier()
        began = seconds_on(setting.device)
        state.save(checkpoints, at_once=False)
        pauses.append(seconds_on(setting.device) - began)
        checkpoints.wait()
        status = checkpoints.status
        assert status.error is None, status.error
        copied.append(copies.seconds)
        written.append(status.seconds or 0.0)
    results.send(Figures(part_bytes, copies_seconds, pauses, copied, written))
    checkpoints.close()
    dist.destroy_process_group()


def parsed() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, help="default: 2, or the number of GPUs")
    parser.add_argument("--millions", type=float, default=100.0, help="parameters")
    parser.add_argument("--saves", type=int, default=6, help="the first one counts apart")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-reserve", action="store_true", help="allocate at the first save")
    parser.add_argument("--json", action="store_true", help="print a record, not a table")
    arguments = parser.parse_args()
    if arguments.ranks is None:
        arguments.ranks = 2 if arguments.device == "cpu" else max(torch.cuda.device_count(), 1)
    if arguments.device == "cuda" and torch.cuda.device_count() < arguments.ranks:
        parser.error("PyTorch sees fewer GPUs here than ranks; --device cpu measures on a CPU")
    if arguments.saves < 2 or arguments.ranks < 1:
        parser.error("--saves: at least 2; --ranks: at least 1")
    return arguments


def main() -> None:
    """Measure on all ranks at once, and print a table."""
    arguments = parsed()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        setting = Setting(
            arguments.ranks,
            arguments.millions,
            arguments.saves,
            arguments.device,
            not arguments.no_reserve,
            os.path.join(directory, "checkpoints"),
        )
        pipes = []
        for rank in range(setting.ranks):
            receiver, sender = context.Pipe(duplex=False)
            store = os.path.join(directory, "store")
            context.Process(target=measure, args=(rank, setting, store, sender)).start()
            pipes.append(receiver)
        figures: list[Figures] = [pipe.recv() for pipe in pipes]
    record = summary(setting, figures)
    print(json.dumps(record, indent=2) if arguments.json else table(record))


def summary(setting: Setting, figures: list[Figures]) -> dict[str, Any]:
    """Return the figures of the slowest rank: medians of all saves but the first."""

    def slowest(name: str) -> list[float]:
        by_rank = [getattr(of_rank, name) for of_rank in figures]
        return [max(of_save) for of_save in zip(*by_rank, strict=True)]

    def median_ms(name: str) -> float:
        return 1e3 * statistics.median(slowest(name)[1:])

    is_gpu = setting.device == "cuda"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benchmarks/checkpoint_pause.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if is_gpu else platform.machine(),
        "torch": torch.__version__,
        "ranks": setting.ranks,
        "part_mb": max(of_rank.part_bytes for of_rank in figures) / 1e6,
        "memcpy_ms": median_ms("memcpy_seconds"),
        "pause_ms": median_ms("pause_seconds"),
        "copy_ms": median_ms("copy_seconds"),
        "first_pause_ms": 1e3 * slowest("pause_seconds")[0],
        "background_ms": median_ms("background_seconds"),
    }


def table(record: dict[str, Any]) -> str:
    """Return the times as lines, each with its ratio to one memcpy."""
    lines = [f"{record['ranks']} ranks ({record['device']}), {record['part_mb']:.0f} MB on each"]
    for name in ("memcpy_ms", "pause_ms", "copy_ms", "first_pause_ms", "background_ms"):
        ratio = record[name] / record["memcpy_ms"]
        shown = name.removesuffix("_ms").replace("_", " ")
        lines.append(f"{shown:12}{record[name]:10.1f} ms  {ratio:8.2f} of memcpy")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
