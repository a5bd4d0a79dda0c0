"""One run in W&B, MLflow and TensorBoard that goes on while instances come and go.

Only the deciding rank logs. Another rank that decides later finds the run: W&B's by its id,
MLflow's by a tag; TensorBoard reads all event files of a directory as one run.

    pip install wandb mlflow tensorboard
    python train.py --directory tracked
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import mlflow
import torch
import wandb
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.tensorboard import SummaryWriter

from autoscaler.training import session


class Trackers:
    """Run of each tracker: opened with the first value that this rank logs, and then kept."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run
        self._is_open = False

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values of a step, which is later than all steps before."""
        if not self._is_open:
            self._open(step)
        self._wandb.log(dict(values), step=step)
        mlflow.log_metrics(dict(values), step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def _open(self, step: int) -> None:
        self._is_open = True
        # With an account: WANDB_API_KEY as a secret of the job, and no WANDB_MODE.
        os.environ.setdefault("WANDB_MODE", "offline")
        self._wandb = wandb.init(
            project="digits", id=self._run, resume="allow", dir=str(self._directory)
        )
        # With a server: MLFLOW_TRACKING_URI in the environment of the job.
        default = f"sqlite:///{self._directory / 'mlflow.db'}"
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", default))
        mlflow.set_experiment("digits")
        runs = mlflow.search_runs(
            filter_string=f"tags.castor_job = '{self._run}'", output_format="list"
        )
        mlflow.start_run(
            run_id=runs[0].info.run_id if runs else None, tags={"castor_job": self._run}
        )
        # Values from this step on that another process has logged before are left out.
        self._writer = SummaryWriter(str(self._directory / "tensorboard"), purge_step=step)

    def finish(self) -> None:
        """End the runs, if this rank has logged."""
        if self._is_open:
            self._wandb.finish()
            mlflow.end_run()
            self._writer.close()


def main() -> None:
    """Train, and log the loss over all instances every five steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("tracked"))
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_function = nn.CrossEntropyLoss()
    trackers = Trackers(arguments.directory.resolve(), os.environ.get("CASTOR_JOB", "alone"))
    with session(model, optimizer, data, batch_size=64) as job:
        for inputs, targets in job.batches(epochs=arguments.epochs):
            step = job.step(loss_function(job.model(inputs), targets))
            if job.every(steps=5):  # after the same step on all ranks, which wait for the log
                loss = job.mean(step.loss)
                if job.decides:
                    values = {"loss": loss, "instances": step.members, "batch": step.batch_size}
                    trackers.log(values, step.number)
    trackers.finish()


if __name__ == "__main__":
    main()
