"""Modules of Lightning that can't be elastic, and a plain one."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import nn


class Plain(lightning.LightningModule):
    """Module of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        return nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Manual(Plain):
    """Module that optimises by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Backward(Plain):
    """Module with a backward pass of its own."""

    def backward(self, loss: Any) -> None:
        loss.backward()


class Gradients(Plain):
    """Module that looks at its gradients."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        pass


class Plateau(Plain):
    """Module whose schedule follows a metric."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "monitor": "loss"},
        }
