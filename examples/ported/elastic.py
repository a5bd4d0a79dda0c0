"""The script of plain.py, made elastic for Castor. `python elastic.py` runs it without Castor."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return images and labels for training, and for validation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, validation = order[360:], order[:360]
    return (
        TensorDataset(images[train], labels[train]),
        TensorDataset(images[validation], labels[validation]),
    )


@torch.no_grad()
def accuracy(model: nn.Module, examples: TensorDataset) -> float:
    """Return the fraction of examples that the model labels correctly."""
    model.eval()
    images, labels = examples.tensors
    share = float((model(images).argmax(1) == labels).float().mean())
    model.train()
    return share


def main() -> None:
    """Train, and save the weights of the best epoch to best.pt."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    train, validation = load()
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    steps = epochs * (len(train) // 64)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss_function = nn.CrossEntropyLoss()
    results = {"best": 0.0}
    with session(
        model,
        optimizer,
        train,
        batch_size=64,
        scheduler=scheduler,
        max_grad_norm=1.0,
        num_workers=2,
        drop_last=True,
        state=results,
    ) as job:
        for epoch in job.epochs(epochs):
            for images, labels in job.batches():
                job.step(loss_function(job.model(images), labels))
            score = accuracy(model, validation)
            job.report(accuracy=score)
            if job.decides:
                print(f"epoch {epoch + 1}: accuracy {score:.3f}", flush=True)
            if job.decides and score > results["best"]:
                torch.save(model.state_dict(), "best.pt")
            results["best"] = max(results["best"], score)


if __name__ == "__main__":
    main()
