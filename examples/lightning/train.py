"""Handwritten digits by Lightning's Trainer.

The strategy is all that differs from a script for one machine.
"""

from __future__ import annotations

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autoscaler.integrations.lightning import ElasticStrategy


class Classifier(lightning.LightningModule):
    """Two layers that tell digits apart."""

    def __init__(self, width: int = 64, learning_rate: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        logits = self.layers(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[1]))
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams["learning_rate"])
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    lightning.seed_everything(1, verbose=False)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    trainer = lightning.Trainer(
        max_epochs=epochs,
        strategy=ElasticStrategy(),
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Classifier()
    trainer.fit(
        module,
        DataLoader(TensorDataset(images[train], labels[train]), batch_size=64, shuffle=True),
        DataLoader(TensorDataset(images[test], labels[test]), batch_size=360),
    )
    if trainer.is_global_zero:
        accuracy = float(trainer.callback_metrics["val_accuracy"])
        torch.save(module.state_dict(), "digits.pt")
        print(f"{trainer.global_step} steps: accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
