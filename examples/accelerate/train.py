"""Handwritten digits in a loop with Accelerate.

The Accelerator and the loop over epochs are all that differs from a script for one machine.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autoscaler.integrations.accelerate import ElasticAccelerator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    torch.manual_seed(1)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=32, shuffle=True)
    tests = DataLoader(TensorDataset(images[test], labels[test]), batch_size=90)
    steps = epochs * (len(train) // 64)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    accelerator = ElasticAccelerator(gradient_accumulation_steps=2, max_grad_norm=1.0)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    tests = accelerator.prepare(tests)
    for epoch in accelerator.epochs(epochs):
        model.train()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            right = [
                accelerator.gather_for_metrics(model(inputs).argmax(1) == targets)
                for inputs, targets in tests
            ]
        if epoch % 10 == 9:
            accuracy = float(torch.cat(right).float().mean())
            accelerator.print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}", flush=True)
    accelerator.save_model(model, "digits")
    accelerator.end_training()


if __name__ == "__main__":
    main()
