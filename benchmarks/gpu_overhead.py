"""Time that each part of a session adds to a step of bare DistributedDataParallel.

    python benchmarks/gpu_overhead.py [--models 124M 1B] [--steps 20] [--rounds 2] [--tiny]

One process, a process group of one rank (NCCL on a GPU, gloo on a CPU), a GPT in bfloat16 under
`torch.autocast`, AdamW, random tokens. The batch is such that a bare step takes about
`--target-ms`. The parts are added to bare DDP one after the other:

  bare      DDP with defaults, backward pass, optimizer
  views     gradients as views of DDP's buckets
  unused    DDP searches for parameters that a step has not used
  hook      the session's hook sums the buckets
  commit    a whole session, without the check for gradients that are not finite
  check     with that check: the default of a session
  clip      with max_grad_norm, whose norm replaces that check
  sample    as check, with gradient squares for the noise scale; see `samples`

Rounds go through the parts forwards and backwards in turn, so that a steady drift cancels out.
Peak memory is that of PyTorch's allocator. In the first steps of a job every second step is
sampled, later as few as take 0.3 % of the time: read `sample_ms`, not the step time of `sample`.
Last, a session saves two checkpoints. Prints a record in JSON. Both models take about 8 minutes on
an H100 (an estimate): run one at a time where the time of a command is limited.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent / "scripts"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from gpt import SHAPES, RandomTokens, as_it_is, gpt_on, mean_loss

from autoscaler.clock import SystemClock
from autoscaler.training import TrainingSession, session
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.gradients.preconditioner import Preconditioner

SEQUENCES = 4096
WARM_UP_STEPS = 5
LARGEST_SHARE_OF_MEMORY = 0.8
GIB = 2**30
# Keyword arguments of `session` for each part that is a whole session.
SESSIONS: dict[str, dict[str, Any]] = {
    "commit": {},
    "check": {},
    "clip": {"max_grad_norm": 1.0},
    "sample": {},
}
PARTS = ("bare", "views", "unused", "hook", *SESSIONS)


@dataclass(frozen=True, slots=True)
class Setting:
    """Device, model, sequences in a step (`batch`) and number of timed steps."""

    device: torch.device
    model: str
    batch: int
    steps: int


@dataclass(slots=True)
class Figures:
    """Measurements of one part, one number per round."""

    step_seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)


def optimizer_of(model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Return AdamW over the model's parameters."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_memory(device: torch.device) -> None:
    """Free unused memory, and reset the peak of allocated memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the peak of allocated memory; 0 on a CPU, where it is not counted."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def timed(step: Callable[[], None], steps: int, device: torch.device) -> float:
    """Return the mean seconds of `steps` steps after the warm-up steps."""
    for _ in range(WARM_UP_STEPS):
        step()
    wait_for(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait_for(device)
    return (time.perf_counter() - began) / steps


def batches(data: RandomTokens, size: int) -> Iterator[Tensor]:
    """Yield batches of a bare loop, without end."""
    begin = 0
    while True:
        yield data.__getitems__([(begin + place) % len(data) for place in range(size)])
        begin += size


def bare_step(setting: Setting, model: nn.Module) -> Callable[[], None]:
    """Return a step of a plain training loop."""
    optimizer = optimizer_of(model, setting.device)
    data = batches(RandomTokens(SHAPES[setting.model], SEQUENCES), setting.batch)

    def step() -> None:
        mean_loss(model, next(data), setting.device).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextmanager
def wrapped(setting: Setting, part: str) -> Iterator[nn.Module]:
    """Yield the model under DDP with the options of a part."""
    model = gpt_on(setting.device, setting.model)
    if part == "hook":
        optimizer = optimizer_of(model, setting.device)
        reducer = Reducer(model, SystemClock(), None, Preconditioner(optimizer))
        yield reducer.model
        reducer.close()
        return
    yield DistributedDataParallel(
        model,
        gradient_as_bucket_view=part != "bare",
        find_unused_parameters=part == "unused",
    )


def measure_loop(setting: Setting, part: str) -> tuple[float, int, float]:
    """Return step seconds, peak bytes and samples per step of a loop without a session."""
    forget_memory(setting.device)
    with wrapped(setting, part) as model:
        seconds = timed(bare_step(setting, model), setting.steps, setting.device)
    return seconds, peak_bytes(setting.device), 0.0


@contextmanager
def opened(setting: Setting, **arguments: Any) -> Iterator[tuple[TrainingSession, Any]]:
    """Yield a session on the model, and a function that runs one step of it."""
    model = gpt_on(setting.device, setting.model)
    data = RandomTokens(SHAPES[setting.model], SEQUENCES)
    optimizer = optimizer_of(model, setting.device)
    with session(
        model, optimizer, data, batch_size=setting.batch, collate_fn=as_it_is, **arguments
    ) as job:
        session_batches = job.batches(epochs=10**9)

        def step() -> None:
            is_last = False
            while not is_last:  # a sampled step has two batches
                is_last = job.step(
                    mean_loss(job.model, next(session_batches), setting.device)
                ).is_last

        yield job, step
        session_batches.close()  # type: ignore[attr-defined]


def sample_from_now_on(job: TrainingSession) -> None:
    """Make a session sample squares as a job with an adaptive batch does.

    A session without a job file has a fixed batch and takes no samples. The batch stays the same:
    its choice needs a controller's fit.
    """
    replica = job._parts.replica
    bounds = replace(replica.limits.own, maximum=2 * job.batch_size, adaptive=True)
    replica.limits.own = bounds
    replica._settings = replace(replica._settings, bounds=bounds, warm_up_steps=0)


def all_finite(reducer: Reducer, parameters: Iterable[nn.Parameter]) -> bool:
    """Return True for any gradients."""
    return True


def measure_session(setting: Setting, part: str) -> tuple[float, int, float]:
    """Return step seconds, peak bytes and samples per step of a session."""
    forget_memory(setting.device)
    check = all_finite if part == "commit" else Reducer.are_finite
    with (
        mock.patch.object(Reducer, "are_finite", check),
        opened(setting, **SESSIONS[part]) as (job, step),
    ):
        if part == "sample":
            sample_from_now_on(job)
        sampled = Sampled(job)
        seconds = timed(sampled.counting(step), setting.steps, setting.device)
    return seconds, peak_bytes(setting.device), sampled.count / setting.steps


class Sampled:
    """Counter of sampled steps of a session after the warm-up."""

    def __init__(self, job: TrainingSession) -> None:
        self._job = job
        self._steps = 0
        self.count = 0

    def counting(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return `step` with a count of its samples."""
        replica, batch = self._job._parts.replica, self._job.batch_size

        def counted() -> None:
            number = self._job._parts.state.counters.step
            step()
            self._steps += 1
            if self._steps > WARM_UP_STEPS:
                self.count += replica.samples_step(number, batch)

        return counted


def measure_checkpoint(setting: Setting) -> dict[str, float]:
    """Return the pauses of two checkpoints, and time until publication and size of the second.

    The session reserves the memory for their copies in the background, after its first steps; the
    first pause includes what is left of that.
    """
    forget_memory(setting.device)
    with (
        tempfile.TemporaryDirectory() as directory,
        opened(setting, checkpoint_directory=directory) as (job, step),
    ):
        return pauses_of_checkpoints(job, step, setting.device)


def pauses_of_checkpoints(
    job: TrainingSession, step: Callable[[], None], device: torch.device
) -> dict[str, float]:
    """Return the figures of two checkpoints of a session; see `measure_checkpoint`."""
    for _ in range(2):
        step()
    pauses_seconds = []
    for _ in range(2):
        step()
        wait_for(device)
        began = time.perf_counter()
        job._schedule.save(at_once=False)
        pauses_seconds.append(time.perf_counter() - began)
        job._parts.wait_for_checkpoint()
        total_seconds = time.perf_counter() - began
    checkpoints = job._parts.checkpoints
    assert checkpoints is not None
    if checkpoints.status.error is not None:
        raise SystemExit(f"the checkpoint failed: {checkpoints.status.error}")
    return {
        "first_pause_seconds": pauses_seconds[0],
        "pause_seconds": pauses_seconds[1],
        "until_published_seconds": total_seconds,
        "gib": (checkpoints.status.bytes or 0) / GIB,
        "peak_gib": peak_bytes(device) / GIB,
    }


def batch_for(device: torch.device, model: str, target_seconds: float) -> int:
    """Return the sequences of a bare step of about `target_seconds`, as far as they fit.

    The first estimate is from steps of 4 sequences, the second from steps of the first estimate,
    because a short step is mostly the launch of kernels.
    """
    parameters = sum(tensor.numel() for tensor in gpt_on(device, model).parameters())
    fixed = 5 * 4 * parameters  # weights, gradients, DDP's buckets, two moments of AdamW
    batch = 4
    for _ in range(2):
        seconds, peak, _ = measure_loop(Setting(device, model, batch, steps=3), "bare")
        target_batch = batch * target_seconds / seconds
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            free = LARGEST_SHARE_OF_MEMORY * total - fixed
            target_batch = min(target_batch, batch * free / max(peak - fixed, 1))
        # A sampled step is split in two, so the batch is even.
        batch = min(max(2 * round(target_batch / 2), 2), SEQUENCES // 2)
    return batch


def summary(figures: dict[str, Figures]) -> dict[str, dict[str, Any]]:
    """Return the record of all parts, each relative to bare DDP."""
    bare = statistics.fmean(figures["bare"].step_seconds)
    check = statistics.fmean(figures["check"].step_seconds)
    record: dict[str, dict[str, Any]] = {}
    for part, part_figures in figures.items():
        seconds = statistics.fmean(part_figures.step_seconds)
        record[part] = {
            "step_ms": 1e3 * seconds,
            "step_ms_by_round": [
                1e3 * round_seconds for round_seconds in part_figures.step_seconds
            ],
            "over_bare_ms": 1e3 * (seconds - bare),
            "ratio_to_bare": seconds / bare,
            "peak_gib": max(part_figures.peak_bytes) / GIB,
        }
        samples = statistics.fmean(part_figures.samples)
        if part == "sample":
            record[part]["samples_a_step"] = samples
            record[part]["sample_ms"] = 1e3 * (seconds - check) / samples if samples else None
    return record


def measure_parts(setting: Setting, rounds: int) -> dict[str, Figures]:
    """Return the measurements of all parts, with rounds forwards and backwards in turn."""
    figures = {part: Figures() for part in PARTS}
    for number in range(rounds):
        for part in PARTS if number % 2 == 0 else reversed(PARTS):
            measure_part = measure_session if part in SESSIONS else measure_loop
            seconds, peak, samples = measure_part(setting, part)
            figures[part].step_seconds.append(seconds)
            figures[part].peak_bytes.append(peak)
            figures[part].samples.append(samples)
            line = f"{setting.model}, batch {setting.batch}, {part}: {1e3 * seconds:.1f} ms a step"
            print(line, file=sys.stderr, flush=True)
    return figures


def measure_or_shrink(setting: Setting, rounds: int) -> tuple[Setting, dict[str, Figures]]:
    """Return the measurements at the setting's batch, halved while memory is too small."""
    while True:
        try:
            return setting, measure_parts(setting, rounds)
        except torch.cuda.OutOfMemoryError:
            if setting.batch < 4:
                raise
            print(
                f"batch {setting.batch} does not fit: trying half of it",
                file=sys.stderr,
                flush=True,
            )
        setting = replace(setting, batch=setting.batch // 4 * 2)


def measure(device: torch.device, model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the record of one model."""
    batch = arguments.batch or batch_for(device, model, arguments.target_ms / 1e3)
    requested = Setting(device, model, batch, arguments.steps)
    setting, figures = measure_or_shrink(requested, arguments.rounds)
    return {
        "parameters": sum(tensor.numel() for tensor in gpt_on(device, model).parameters()),
        "batch": setting.batch,
        "tokens_a_step": setting.batch * SHAPES[model].context,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "parts": summary(figures),
        "checkpoint": measure_checkpoint(setting),
    }


def parsed() -> argparse.Namespace:
    """Return the command-line arguments; some defaults depend on `--tiny`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU, in seconds")
    parser.add_argument("--models", nargs="+", choices=("124M", "1B"), default=["124M", "1B"])
    parser.add_argument("--target-ms", type=float, default=300.0, help="length of a bare step")
    parser.add_argument("--batch", type=int, help="sequences in a step, in place of --target-ms")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each part and round")
    parser.add_argument("--rounds", type=int, default=2, help="even numbers cancel a steady drift")
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.rounds) < 1:
        parser.error("--steps and --rounds: at least 1")
    if arguments.batch is not None and not 2 <= arguments.batch <= SEQUENCES // 2:
        parser.error(f"--batch={arguments.batch}: from 2 to {SEQUENCES // 2}")
    if arguments.tiny:
        arguments.models, arguments.steps = ["tiny"], min(arguments.steps, 4)
        arguments.batch = arguments.batch or 4
    elif not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here; --tiny runs the same on a CPU")
    return arguments


def main() -> None:
    """Measure, and print the record."""
    arguments = parsed()
    is_gpu = not arguments.tiny
    device = torch.device("cuda", 0) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if is_gpu else "gloo"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    try:
        models = {model: measure(device, model, arguments) for model in arguments.models}
    finally:
        dist.destroy_process_group()
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benchmarks/gpu_overhead.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name(device) if is_gpu else platform.machine(),
        "backend": backend,
        "torch": torch.__version__,
        "precision": "bfloat16",
        "models": models,
    }
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
