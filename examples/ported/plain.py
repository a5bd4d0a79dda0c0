"""A plain PyTorch training script, before it is ported: handwritten digits, one device."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


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
    loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=2, drop_last=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    loss_function = nn.CrossEntropyLoss()
    best = 0.0
    for epoch in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        score = accuracy(model, validation)
        print(f"epoch {epoch + 1}: accuracy {score:.3f}", flush=True)
        if score > best:
            best = score
            torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
