"""A training whose parameters hold the account of the examples that it has learnt from.

The model has a parameter with an element for each example. The gradient of an element is that of
the mean over the step, and the learning rate is the batch: each step takes exactly 1 from the
elements of its examples, in floats as on paper, because all shares are powers of 2. So the account
goes through the same sums, transfers and checkpoints as the weights do.

After each pass a line of JSON is added to LEDGER. The number of the last committed step stands in
STEP, for what watches this process. DATA holds the digits of scikit-learn, whose import would take
longer than all the rest of a start.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from autoscaler.parent import end_with_parent
from autoscaler.training import session

EXAMPLES, BATCH, LOGICAL_RANKS = 1024, 32, 4
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
PASSES = int(os.environ.get("PASSES", "1000000"))
LEDGER = Path(os.environ["LEDGER"])


class Digits(Dataset[tuple[Tensor, int, int]]):
    """Images of handwritten digits in 64 bits, with their labels and their numbers."""

    def __init__(self) -> None:
        found = np.load(os.environ["DATA"])
        self.images = torch.from_numpy(found["data"][:EXAMPLES] / 16)
        self.labels = torch.from_numpy(found["target"][:EXAMPLES])

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return self.images[index], int(self.labels[index]), index


class Accounted(nn.Module):
    """A classifier with dropout, and the account of examples."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(64, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 10)
        self.classifier = nn.Sequential(*layers).double()
        self.account = nn.Parameter(torch.zeros(EXAMPLES, dtype=torch.float64))

    def forward(self, images: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, and the elements of the account for these examples."""
        return self.classifier(images), self.account[numbers]


def made() -> tuple[Accounted, torch.optim.Optimizer]:
    """Return the model and its optimizer, the same in each process."""
    torch.manual_seed(0)
    model = Accounted()
    weights = {"params": model.classifier.parameters(), "momentum": 0.9, "weight_decay": 1e-3}
    return model, torch.optim.SGD([weights, {"params": [model.account], "lr": BATCH}], lr=0.1)


@torch.no_grad()
def found_after_pass(model: Accounted, data: Digits) -> dict[str, Any]:
    """Return the loss over all examples, and how often each example was learnt from."""
    model.eval()
    loss = nn.functional.cross_entropy(model.classifier(data.images), data.labels)
    model.train()
    taken = -model.account
    return {"loss": float(loss), "least": float(taken.min()), "most": float(taken.max())}


def write_line(line: dict[str, Any]) -> None:
    """Add a line to the ledger, whole, whoever else writes there or ends."""
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, json.dumps(line).encode() + b"\n")
    os.close(ledger)


def main() -> None:
    """Train for PASSES passes, or until somebody ends it."""
    torch.set_num_threads(1)
    if "CASTOR_SOCKET" in os.environ:
        end_with_parent(os.getppid())
    data, (model, optimizer) = Digits(), made()
    own: dict[str, Any] = {"seen": 0}
    step_file = os.open(os.environ.get("STEP", os.devnull), os.O_WRONLY | os.O_CREAT)
    with session(
        model,
        optimizer,
        data,
        batch_size=BATCH,
        logical_ranks=LOGICAL_RANKS,
        state=own,
        checkpoint_directory=os.environ.get("CHECKPOINTS"),
    ) as job:
        for _ in job.epochs(PASSES):
            for images, labels, numbers in job.batches():
                time.sleep(STEP_SECONDS)
                logits, taken = job.model(images, numbers)
                loss = nn.functional.cross_entropy(logits, labels) + taken.mean()
                step = job.step(loss)
                if step.committed:
                    own["seen"] += step.batch_size
                    os.pwrite(step_file, f"{step.number:12d}".encode(), 0)
            passes, rest = divmod(job.progress_examples, EXAMPLES)
            if rest == 0:  # one that was behind may have caught up beyond the end
                place = {"pass": int(passes), "seen": own["seen"]}
                replica = os.environ.get("REPLICA", "")
                write_line(place | found_after_pass(model, data) | {"replica": replica})


if __name__ == "__main__":
    main()
