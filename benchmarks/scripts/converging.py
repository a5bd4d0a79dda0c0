"""A small real task, trained to its end. It writes down the loss on examples that it has not seen.

TASK is digits (a network with one hidden layer), chargpt (that of `examples/chargpt`, on the text
in DATA), resnet (with BatchNorm, on the digits) or groupnorm (the same ResNet with GroupNorm, in
64 bits). SEED chooses the initial weights and the order
of examples. STEP_SECONDS is added to each micro-batch, so that the size of the job can change
meanwhile, and EXAMPLE_SECONDS for each of its examples. EPOCHS takes the place of the task's own
number. With WRITES_STEPS each step is a line in TRACE, and while there is a directory of that name
with `.states`, the model and the optimizer are kept there after every fifth step.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from autoscaler.parent import end_with_parent
from autoscaler.training.training_session import Step, session

SEED = int(os.environ["SEED"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
EXAMPLE_SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "0"))
DATA = Path(os.environ["DATA"])
KEPT_STEPS = 5
CHARGPT = Path(__file__).parents[2] / "examples" / "chargpt"


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and for how long; `unseen` is for the loss at the end."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    train: Dataset[Any]
    unseen: Any
    batch: int
    epochs: int


Normalisation = Callable[[int], nn.Module]


class Block(nn.Module):
    """Two convolutions, each with a normalisation, beside the identity."""

    def __init__(self, width: int, normalisation: Normalisation) -> None:
        super().__init__()
        layers = [
            layer
            for _ in range(2)
            for layer in (
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                normalisation(width),
            )
        ]
        self.layers = nn.Sequential(*layers[:2], nn.ReLU(), *layers[2:])

    def forward(self, images: Tensor) -> Tensor:
        """Return images of the same shape."""
        return nn.functional.relu(images + self.layers(images))


def digits(flat: bool, dtype: torch.dtype = torch.float32) -> tuple[Dataset[Any], Any]:
    """Return digits to train on, and others to test with."""
    found = np.load(DATA)
    images = torch.tensor(found["data"] / 16, dtype=dtype)
    if not flat:
        images = images.reshape(-1, 1, 8, 8)
    data = TensorDataset(images, torch.tensor(found["target"]))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    unseen = data[order[1408:]]
    return Subset(data, order[:1408]), unseen


def perceptron() -> Task:
    """Return a network with one hidden layer on digits."""
    train, unseen = digits(flat=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return Task(
        model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), train, unseen, 32, 8
    )


def residual(
    normalisation: Normalisation = nn.BatchNorm2d, dtype: torch.dtype = torch.float32
) -> Task:
    """Return a small ResNet on digits."""
    train, unseen = digits(flat=False, dtype=dtype)
    stem = nn.Conv2d(1, 8, 3, padding=1, bias=False), normalisation(8), nn.ReLU()
    head = nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10)
    blocks = Block(8, normalisation), Block(8, normalisation)
    model = nn.Sequential(*stem, *blocks, *head).to(dtype)
    return Task(
        model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), train, unseen, 32, 6
    )


def residual_by_groups() -> Task:
    """Return the ResNet with GroupNorm, which normalises each image by itself.

    It has 64 bits: rounding errors of 32 bits grow to differences of the final loss as large as
    those between seeds, in a plain PyTorch loop that sums in another order, too.
    """
    return residual(lambda width: nn.GroupNorm(2, width), torch.float64)


def language() -> Task:
    """Return the character-level GPT of the examples, smaller."""
    sys.path.insert(0, str(CHARGPT))
    example = importlib.import_module("train")
    windows = example.Windows(DATA.read_text(), 32, 2048 + 256)
    model = example.CharacterGPT(len(windows.characters), 32, 32, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    unseen = default_collate([windows[index] for index in range(2048, len(windows))])
    return Task(model, optimizer, Subset(windows, range(2048)), unseen, 32, 6)


TASKS: dict[str, Callable[[], Task]] = {
    "digits": perceptron,
    "resnet": residual,
    "groupnorm": residual_by_groups,
    "chargpt": language,
}


def mean_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean cross-entropy of a batch."""
    inputs, targets = batch
    logits = model(inputs)
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.flatten())


@torch.no_grad()
def unseen_loss(task: Task) -> float:
    """Return the loss on what was not trained on."""
    task.model.eval()
    loss = mean_loss(task.model, task.unseen)
    task.model.train()
    return float(loss)


def step_line(step: Step) -> str:
    """Return a step as a line, with the time of its end."""
    values = {"at": time.time(), "committed": step.committed}
    return json.dumps(values | {"examples": step.batch_size, "members": step.members}) + "\n"


def keep_state(task: Task, step: Step, states: Path) -> None:
    """Keep the model and the optimizer, if that is wanted after this step."""
    if step.number % KEPT_STEPS == 0 and states.is_dir():
        kept = {"model": task.model.state_dict(), "optimizer": task.optimizer.state_dict()}
        unfinished = states / "unfinished"
        torch.save(kept, unfinished)
        unfinished.replace(states / f"{step.number}.pt")


def main() -> None:
    """Train, and write down the last loss."""
    torch.set_num_threads(1)
    if "CASTOR_SOCKET" in os.environ:
        end_with_parent(os.getppid())
    torch.manual_seed(SEED)
    task = TASKS[os.environ["TASK"]]()
    largest, steps = task.batch, 0
    epochs = int(os.environ.get("EPOCHS", task.epochs))
    trace = os.environ["TRACE"] if "WRITES_STEPS" in os.environ else os.devnull
    with (
        session(task.model, task.optimizer, task.train, batch_size=task.batch, seed=SEED) as job,
        open(trace, "a", buffering=1) as lines,
    ):
        for batch in job.batches(epochs=epochs):
            time.sleep(STEP_SECONDS + EXAMPLE_SECONDS * len(batch[1]))
            step = job.step(mean_loss(job.model, batch))
            if step.is_last:
                lines.write(step_line(step))
                keep_state(task, step, Path(f"{trace}.states"))
            largest, steps = max(largest, step.batch_size), step.number
        progress = job.progress_examples
    line = {"loss": unseen_loss(task), "steps": steps, "largest_batch": largest}
    result = Path(os.environ["RESULT"])
    # All that train to the end write it: any one of them may be killed before it does.
    unfinished = result.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({**line, "useful": progress}))
    unfinished.replace(result)


if __name__ == "__main__":
    main()
