"""Dropout in 64 bits, with an average of the weights, and with logical ranks on request."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from autoscaler.training import TrainingSession, session

EXAMPLES, BATCH = 96, 16


class Augmented(TensorDataset):
    """Examples with noise of all generators, drawn where an example is made."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        inputs, targets = super().__getitem__(index)
        shift = random.random() + float(np.random.random())
        return inputs + 0.1 * torch.randn(6, dtype=torch.float64) + 0.1 * shift, targets


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64)
    kind = Augmented if "WORKERS" in os.environ else TensorDataset
    return kind(inputs, inputs.sum(dim=1, keepdim=True))


class Patience:
    """An early stop that counts steps without a lower loss."""

    def __init__(self) -> None:
        self.best, self.bad = float("inf"), 0

    def state_dict(self) -> dict[str, float]:
        return {"best": self.best, "bad": self.bad}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.best, self.bad = state["best"], int(state["bad"])

    def see(self, loss: float) -> None:
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = nn.Linear(6, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 1)
    model = nn.Sequential(*layers).double()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def total(model: nn.Module) -> float:
    return float(sum(parameter.detach().abs().sum() for parameter in model.parameters()))


def weights(model: nn.Module) -> list[float]:
    """Return all weights of a model."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


def trained(
    job: TrainingSession, model: nn.Module, average: AveragedModel, job_state: dict[str, Any]
) -> Any:
    """Train on, and yield a line for each step that was committed."""
    for inputs, targets in job.batches(epochs=int(os.environ.get("EPOCHS", "4"))):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.0")))
        mask = torch.rand(3).tolist()
        outputs = job.model(inputs)
        step = job.step(nn.functional.mse_loss(outputs, targets))
        if step.committed:
            average.update_parameters(model)
            job_state["seen"] += step.batch_size
            job_state["patience"].see(total(model))
        yield {
            "step": step.number,
            "committed": step.committed,
            "members": step.members,
            "weights": weights(model),
            "average": weights(average),
            "seen": job_state["seen"],
            "mask": mask,
            "patience": job_state["patience"].bad,
            "rate": step.learning_rate,
            "scale": scale_of(job),
        }


def scale_of(job: TrainingSession) -> float | None:
    scaler = job._parts.state._scaler
    return None if scaler is None else scaler.get_scale()


def opened(model: nn.Module, optimizer: torch.optim.Optimizer, job_state: dict[str, Any]) -> Any:
    job_state.setdefault("patience", Patience())
    logical = int(os.environ.get("LOGICAL_RANKS", "0")) or None
    settings: dict[str, Any] = {"num_workers": int(os.environ.get("WORKERS", "0"))}
    if os.environ.get("SCALER"):
        settings["scaler"] = GradScaler("cpu", init_scale=2.0**40, growth_interval=7)
        settings["scheduler"] = torch.optim.lr_scheduler.StepLR(optimizer, 11, gamma=0.9)
    return session(
        model,
        optimizer,
        data(),
        batch_size=BATCH,
        logical_ranks=logical,
        state=job_state,
        **settings,
    )


def main() -> None:
    model, optimizer = made()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    job_state: dict[str, Any] = {"average": average, "seen": 0}
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", ""))
    with path.open("a") as trace, opened(model, optimizer, job_state) as job:
        for line in trained(job, model, average, job_state):
            trace.write(json.dumps(line) + "\n")
            trace.flush()


if __name__ == "__main__":
    main()
