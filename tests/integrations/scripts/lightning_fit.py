"""Fit of a small network by Lightning: plain, or elastic with ELASTIC=1.

The rank that logs puts the losses into RESULT. Steps are slow until HURRY exists.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autoscaler.integrations.lightning import ElasticStrategy


class Losses(Callback):
    """Validation loss of each epoch, as state that checkpoints hold."""

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}
        self.steps: list[int] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.steps.append(trainer.global_step)
        if not os.path.exists(os.environ["HURRY"]):
            time.sleep(0.1)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if not trainer.sanity_checking:
            metrics = trainer.callback_metrics
            self.losses[str(trainer.current_epoch)] = float(metrics["val_loss"])

    def state_dict(self) -> dict[str, Any]:
        return {"losses": dict(self.losses)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.losses = dict(state_dict["losses"])


class Network(lightning.LightningModule):
    """Network that learns the sine of the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.8)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main() -> None:
    lightning.seed_everything(1, verbose=False)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(192, 8, generator=generator, dtype=torch.float64)
    targets = inputs.sum(1, keepdim=True).sin()
    train = DataLoader(TensorDataset(inputs[:128], targets[:128]), batch_size=8, shuffle=False)
    validation = DataLoader(TensorDataset(inputs[128:], targets[128:]), batch_size=32)
    is_elastic = os.environ.get("ELASTIC") == "1"
    losses = Losses()
    module = Network().double()
    trainer = lightning.Trainer(
        max_epochs=int(os.environ["EPOCHS"]),
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        callbacks=[
            losses,
            EarlyStopping("val_loss", patience=1000),
            ModelCheckpoint(os.environ["OUTPUT"], monitor="val_loss"),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"strategy": ElasticStrategy()} if is_elastic else {}),
    )
    trainer.fit(module, train, validation)
    if trainer.is_global_zero:
        result = {
            "losses": losses.losses,
            "steps": losses.steps,
            "global_step": trainer.global_step,
            "epoch": trainer.current_epoch,
            "weights": [float(parameter.sum()) for parameter in module.parameters()],
            "best": float(trainer.checkpoint_callback.best_model_score),
        }
        Path(os.environ["RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
