"""Study whose objective trains with Lightning's Trainer. Interrupted trials are resumed.

pip install lightning
python lightning_study.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import optuna
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import hpo

EPOCHS = 6


class Regression(lightning.LightningModule):
    """Small network that learns the sine of a number."""

    def __init__(self, width: int, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.model = torch.nn.Sequential(
            torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return functional.mse_loss(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val_loss", functional.mse_loss(self.model(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.learning_rate)


def batches(seed: int, size: int = 64) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    inputs = 6 * torch.rand(1024, 1, generator=generator) - 3
    return DataLoader(TensorDataset(inputs, inputs.sin()), batch_size=size)


def objective(trial: optuna.Trial) -> float:
    """Train for six epochs, report the loss after each, and return the last loss."""
    torch.manual_seed(trial.number)
    module = Regression(
        width=trial.suggest_int("width", 4, 64, log=True),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
    )
    # Castor saves the Trainer's checkpoint as state, and restores it on another instance.
    file, state = Path("last.ckpt"), {"checkpoint": b""}
    loss = float("inf")
    for epoch in hpo.epochs(trial, EPOCHS, {"trainer": state}):
        file.write_bytes(state["checkpoint"])
        trainer = lightning.Trainer(
            max_epochs=epoch + 1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, batches(1), batches(2), ckpt_path=str(file) if epoch else None)
        trainer.save_checkpoint(file)
        state["checkpoint"] = file.read_bytes()
        loss = float(trainer.callback_metrics["val_loss"])
        trial.report(loss, epoch + 1)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8)
    study = optuna.create_study(
        study_name="lightning",
        storage="sqlite:///lightning.db",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    hpo.optimize(study, objective, n_trials=parser.parse_args().trials)
    print(f"best: {study.best_value:.4f} with {study.best_params}")
