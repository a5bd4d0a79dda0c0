"""Time that a session adds to a step of a model sharded by FSDP2, and pause of its checkpoints.

    python benchmarks/gpu_fsdp.py [--model 124M] [--batch 8] [--steps 20] [--rounds 2]
    torchrun --nproc-per-node 8 benchmarks/gpu_fsdp.py --model 1B

One replica of one rank for each GPU, or on a CPU with gloo: a GPT whose blocks are sharded over
all ranks, in bfloat16 by FSDP2's mixed precision, with AdamW and random tokens. Parts:

  bare      FSDP2 alone: backward pass, optimizer
  check     a session, by default with its check for gradients that are not finite
  clip      a session with max_grad_norm
  sample    as check, with gradient squares for the noise scale in every second step

Rounds go through the parts forwards and backwards in turn. Then a session saves two checkpoints,
and steps with and without a session are compared. Rank 0 prints a record in JSON; the status is 1
if a session moves weights differently.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "scripts"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from gpt import SHAPES, RandomTokens, as_it_is, gpt_on
from gpu_overhead import (
    GIB,
    SEQUENCES,
    batches,
    forget_memory,
    optimizer_of,
    pauses_of_checkpoints,
    peak_bytes,
    sample_from_now_on,
    timed,
)

from autoscaler.training import TrainingSession, replica_mesh, session
from autoscaler.training.gradients.parts import local_part

SESSIONS: dict[str, dict[str, Any]] = {
    "check": {},
    "clip": {"max_grad_norm": 1.0},
    "sample": {},
}
PARTS = ("bare", *SESSIONS)
COMPARED_STEPS = 3
LARGEST_DIFFERENCE = 0.02  # of gradients in 16 bits, whose examples lie on other ranks


@dataclass(frozen=True, slots=True)
class Setting:
    """Mesh, model, sequences of each rank in a step (`batch`) and number of timed steps."""

    mesh: DeviceMesh
    model: str
    batch: int
    steps: int

    @property
    def device(self) -> torch.device:
        """Device of this rank."""
        kind = self.mesh.device_type
        return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else _CPU


_CPU = torch.device("cpu")


def sharded_gpt(setting: Setting) -> nn.Module:
    """Return the GPT, sharded by blocks over all ranks."""
    model = gpt_on(setting.device, setting.model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=setting.mesh, mp_policy=policy)
    fully_shard(model, mesh=setting.mesh, mp_policy=policy)
    return model


def bare_step(
    setting: Setting, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[], None]:
    """Return a step of a plain loop, in which all ranks together take a session's examples."""
    data = batches(RandomTokens(SHAPES[setting.model], SEQUENCES), setting.batch)

    def step() -> None:
        for _ in range(setting.mesh.get_rank()):
            next(data)
        sequences = next(data).to(setting.device)
        for _ in range(setting.mesh.get_rank() + 1, setting.mesh.size()):
            next(data)
        model(sequences).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@contextmanager
def opened(
    setting: Setting, model: nn.Module, optimizer: torch.optim.Optimizer, **arguments: Any
) -> Iterator[tuple[TrainingSession, Callable[[], None]]]:
    """Yield a session on the model, and a function that runs one step of it."""
    data = RandomTokens(SHAPES[setting.model], SEQUENCES)
    size = setting.batch * setting.mesh.size()
    with session(
        model, optimizer, data, batch_size=size, collate_fn=as_it_is, shuffle=False, **arguments
    ) as job:
        session_batches = job.batches(epochs=10**9)

        def step() -> None:
            is_last = False
            while not is_last:  # a sampled step of one rank has two batches
                sequences = next(session_batches).to(setting.device)
                is_last = job.step(job.model(sequences)).is_last

        yield job, step
        session_batches.close()  # type: ignore[attr-defined]


def measured(setting: Setting, part: str) -> tuple[float, int]:
    """Return the seconds of a step and the peak of memory of a part."""
    forget_memory(setting.device)
    model = sharded_gpt(setting)
    optimizer = optimizer_of(model, setting.device)
    if part == "bare":
        seconds = timed(bare_step(setting, model, optimizer), setting.steps, setting.device)
    else:
        with opened(setting, model, optimizer, **SESSIONS[part]) as (job, step):
            if part == "sample":
                sample_from_now_on(job)
            seconds = timed(step, setting.steps, setting.device)
    return seconds, peak_bytes(setting.device)


def difference_of_movement(setting: Setting) -> float:
    """Return how far weights move differently in a session, as a fraction of their movement.

    Both train by SGD, which shows a wrong size of gradients, in bfloat16.
    """
    moved = [sharded_gpt(setting) for _ in range(2)]
    before = parts_of(moved[0])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in moved]
    step = bare_step(setting, moved[0], optimizers[0])
    for _ in range(COMPARED_STEPS):
        step()
    with opened(setting, moved[1], optimizers[1]) as (_, session_step):
        for _ in range(COMPARED_STEPS):
            session_step()
    sums = torch.zeros(2, dtype=torch.float64)
    for weight, bare, trained in zip(before, parts_of(moved[0]), parts_of(moved[1]), strict=True):
        changes = bare - weight, trained - bare
        sums += torch.tensor([float(change.double().square().sum()) for change in changes])
    dist.all_reduce(sums)
    movement, difference = sums.sqrt().tolist()
    return float(difference / movement)


def parts_of(model: nn.Module) -> list[Tensor]:
    """Return copies of this rank's parts of all parameters."""
    return [local_part(parameter).clone() for parameter in model.parameters()]


def record_of(setting: Setting, rounds: int) -> dict[str, Any]:
    """Measure all parts, and return the record."""
    figures: dict[str, list[tuple[float, int]]] = {part: [] for part in PARTS}
    for number in range(rounds):
        for part in PARTS if number % 2 == 0 else reversed(PARTS):
            figures[part].append(measured(setting, part))
    means = {
        part: statistics.fmean(seconds for seconds, _ in rounds_of_part)
        for part, rounds_of_part in figures.items()
    }
    model = sharded_gpt(setting)
    optimizer = optimizer_of(model, setting.device)
    with (
        tempfile.TemporaryDirectory() as directory,
        opened(setting, model, optimizer, checkpoint_directory=shared(directory)) as opened_job,
    ):
        checkpoint = pauses_of_checkpoints(*opened_job, setting.device)
    cuda = setting.device.type == "cuda"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "ranks": setting.mesh.size(),
        "model": setting.model,
        "sequences_per_rank": setting.batch,
        "parts": {
            part: {
                "step_ms": 1e3 * means[part],
                "over_bare_ms": 1e3 * (means[part] - means["bare"]),
                "peak_gib": max(peak for _, peak in rounds_of_part) / GIB,
            }
            for part, rounds_of_part in figures.items()
        },
        "checkpoint": checkpoint,
        "difference_of_movement": difference_of_movement(setting),
    }


def shared(directory: str) -> str:
    """Return the first rank's directory, on all ranks."""
    message = [directory]
    dist.broadcast_object_list(message, src=0)
    return message[0]


def main() -> int:
    """Print the record; return 1 if a session moves weights differently than rounding explains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="124M", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank in a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    setting = Setting(replica_mesh(), arguments.model, arguments.batch, arguments.steps)
    record = record_of(setting, arguments.rounds)
    if setting.mesh.get_rank() == 0:
        print(json.dumps(record, indent=1))
    return int(record["difference_of_movement"] > LARGEST_DIFFERENCE)


if __name__ == "__main__":
    sys.exit(main())
