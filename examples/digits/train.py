"""Training of a small convolutional network on scikit-learn's handwritten digits.

`python train.py` runs it without Castor. The same script is elastic under Castor.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return 1,797 images of 8 x 8 pixels with labels: four fifths for training, one for tests."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network(width: int) -> nn.Sequential:
    """Return a network of three convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * width, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, examples: TensorDataset) -> float:
    """Return the fraction of examples that the model labels correctly."""
    images, labels = examples.tensors
    return float((model(images).argmax(1) == labels).float().mean())


def main() -> None:
    """Train, and print the accuracy every 20 epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=16)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train, test = load()
    model = network(arguments.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()

    with session(model, optimizer, train, batch_size=32) as job:
        for epoch in job.epochs(arguments.epochs):
            for images, labels in job.batches():
                job.step(loss_function(job.model(images), labels))
            if epoch % 20 == 19:
                job.report(accuracy=accuracy(model, test))
                if job.decides:
                    print(f"epoch {epoch + 1}: accuracy {accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
