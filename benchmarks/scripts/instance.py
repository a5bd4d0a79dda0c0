"""Training on the GPU of its rank, if any, that writes down a hash of its weights at each step."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training.session import session

EXAMPLES, WIDTH, BATCH = 4096, 256, 64
RANK = os.environ.get("LOCAL_RANK", "0")
IS_GPU = os.environ["DEVICE"] == "cuda"
DEVICE = torch.device("cuda", int(RANK)) if IS_GPU else torch.device("cpu")


def state_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors of the optimizer's state."""
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, torch.Tensor))


def digest(model: nn.Module) -> str:
    """Return a hash of the weights."""
    whole = hashlib.sha256()
    for parameter in model.parameters():
        whole.update(parameter.detach().cpu().numpy().tobytes())
    return whole.hexdigest()


def main() -> None:
    """Train until somebody ends it."""
    torch.manual_seed(os.getpid())
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES, WIDTH, generator=generator)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    layers = nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
    model = nn.Sequential(*layers, nn.Linear(1024, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    path = f"{os.environ['TRACE']}{RANK.replace('0', '')}"
    across = os.environ["ACROSS"]
    with (
        open(path, "a") as trace,
        session(model, optimizer, data, batch_size=BATCH, across=across) as job,
    ):
        state = job._parts.state
        for features, targets in job.batches(epochs=10**9):
            before = state.counters.step
            outputs = job.model(features.to(DEVICE))
            job.step(nn.functional.mse_loss(outputs, targets.to(DEVICE)))
            devices = {str(tensor.device) for tensor in state_of(optimizer)}
            line = {
                "step": before,
                "committed": state.counters.step > before,
                "at": time.time(),
                "replicas": job._parts.replica.agreement.replicas,
                "weights": digest(model),
                "devices": sorted(devices - {"cpu", str(DEVICE)}),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()


main()
