"""GradScaler and a step with an infinite gradient, under a session on one GPU.

    python benchmarks/gpu_scaler.py [--device auto|cuda|cpu] [--epochs 8]

One process forms a process group (NCCL on a GPU, gloo on a CPU) and trains a small network in
16-bit floats under `torch.autocast`, with a GradScaler given to the session. One step gets an
infinite gradient. That step must be skipped and the scale halved, weights must stay finite, and
training must continue. Prints a record in JSON; the exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.training import session

EXAMPLES, WIDTH, BATCH = 512, 32, 64
BAD_STEP = 11
SCALE = 2.0**10


class Watched(nn.Module):
    """Small network whose first weight gets an infinite gradient while `is_spoilt` is true."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.Linear(WIDTH, 64)
        first.weight.register_hook(self._spoil)  # type: ignore[no-untyped-call]
        self.layers = nn.Sequential(first, nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
        self.is_spoilt = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one number per example."""
        outputs: Tensor = self.layers(inputs)
        return outputs

    def _spoil(self, gradient: Tensor) -> Tensor:
        """Return the gradient, or an infinite one while `is_spoilt` is true."""
        return torch.full_like(gradient, torch.inf) if self.is_spoilt else gradient


def data(device: torch.device) -> TensorDataset:
    """Return a linear regression problem, with its examples on the device."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES, WIDTH, generator=generator)
    targets = inputs @ torch.randn(WIDTH, 1, generator=generator) / WIDTH**0.5
    return TensorDataset(inputs.to(device), targets.to(device))


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights and of BatchNorm's statistics."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def is_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Return whether two states of a model are equal."""
    return all(torch.equal(value, second[name]) for name, value in first.items())


def is_finite(state: dict[str, Tensor]) -> bool:
    """Return whether a state of a model has neither NaN nor infinity."""
    return all(bool(torch.isfinite(value).all()) for value in state.values())


def train(device: torch.device, epochs: int) -> dict[str, Any]:
    """Train with one infinite gradient; return checks and measurements."""
    torch.manual_seed(0)
    model = Watched().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = GradScaler(device.type, init_scale=SCALE, growth_interval=10**6)
    losses, after_bad = list[float](), dict[str, Tensor]()
    checks: dict[str, bool] = {}
    with session(model, optimizer, data(device), batch_size=BATCH, scaler=scaler) as job:
        counters = job._parts.state.counters
        for inputs, targets in job.batches(epochs=epochs):
            step = counters.step
            model.is_spoilt = step == BAD_STEP
            before = state_of(model) if model.is_spoilt else {}
            with torch.autocast(device.type, dtype=torch.float16):
                outputs = job.model(inputs)
            loss = nn.functional.mse_loss(outputs.float(), targets)
            job.step(loss)
            losses.append(float(loss.detach()))
            if step == BAD_STEP:
                after_bad = state_of(model)
                checks["the step is skipped"] = counters.skipped_steps == 1
                checks["its weights and buffers are as before"] = is_equal(before, after_bad)
                checks["the scale is halved"] = scaler.get_scale() == SCALE / 2
    last, steps_per_epoch = state_of(model), EXAMPLES // BATCH
    first_loss = sum(losses[:steps_per_epoch]) / steps_per_epoch
    last_loss = sum(losses[-steps_per_epoch:]) / steps_per_epoch
    checks["no other step is skipped"] = counters.skipped_steps == 1
    checks["weights are finite"] = is_finite(last)
    checks["later steps move the weights"] = bool(after_bad) and not is_equal(after_bad, last)
    checks["the loss falls"] = last_loss < first_loss
    return {
        "checks": checks,
        "steps": counters.step,
        "skipped_steps": counters.skipped_steps,
        "scale": scaler.get_scale(),
        "first_epoch_loss": first_loss,
        "last_epoch_loss": last_loss,
    }


def record(device: torch.device, epochs: int) -> dict[str, Any]:
    """Return the record of one run in a process group of its own."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    try:
        outcome = train(device, epochs)
    finally:
        dist.destroy_process_group()
    is_gpu = device.type == "cuda"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if is_gpu else platform.machine(),
        "backend": backend,
        "torch": torch.__version__,
        "precision": "float16",
        "result": "passed" if all(outcome["checks"].values()) else "failed",
        **outcome,
    }


def chosen(name: str) -> torch.device:
    """Return the device of that name; auto is a GPU where there is one.

    Raises:
        SystemExit: a GPU is requested, and PyTorch sees none.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise SystemExit("--device cuda: PyTorch sees no GPU here; use --device cpu")
    return torch.device("cuda", 0) if has_gpu and name != "cpu" else torch.device("cpu")


def main() -> None:
    """Run, and print the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--epochs", type=int, default=8, help="at least 2: a step in the second is bad"
    )
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error("--epochs: at least 2, as a step of the second epoch gets the bad gradient")
    result = record(chosen(arguments.device), arguments.epochs)
    print(json.dumps(result, indent=2))
    raise SystemExit(0 if result["result"] == "passed" else 1)


if __name__ == "__main__":
    main()
