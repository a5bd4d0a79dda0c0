"""The gradient noise scale of a task of `converging.py`, from all of its examples.

    TASK=digits SEED=0 DATA=FILE python benchmarks/scripts/true_noise.py DIRECTORY...

Each DIRECTORY has files with the model and the optimizer as they were after some steps. The
gradients of all examples, 32 at a time, give |G|^2 and tr(Sigma) there without any of the samples
that the training library has taken. Printed as JSON is, for each directory, the noise scale in
examples: the ratio of the means over its files. As in the library, |G|^2 is that of examples
without end, of which the task's are a draw, and gradients are divided by what the optimizer
divides them by.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from pathlib import Path

import torch
from converging import TASKS, Task, mean_loss
from torch import Tensor
from torch.utils.data import DataLoader

from autoscaler.training.gradients.preconditioner import Preconditioner


def gradient(task: Task, batch: list[Tensor]) -> Tensor:
    """Return the gradient of the mean loss of a batch, as the optimizer moves by it: (P,)."""
    task.optimizer.zero_grad()
    torch.autograd.backward(mean_loss(task.model, batch))
    preconditioner = Preconditioner(task.optimizer)
    return torch.cat(
        [
            (
                p.grad * preconditioner.factors(p) if preconditioner.is_adaptive else p.grad
            ).flatten()
            for p in task.model.parameters()
            if p.grad is not None
        ]
    )


def square_and_trace(gradients: Tensor, batch: int) -> tuple[float, float]:
    """Return |G|^2 and tr(Sigma) of the gradients (M, P) of M batches, which are all examples."""
    examples = batch * len(gradients)
    whole = float(gradients.mean(dim=0).square().sum())
    small = float(gradients.square().sum(dim=1).mean())
    trace = (small - whole) / (1 / batch - 1 / examples)
    return whole - trace / examples, trace


def noise_examples(task: Task, directory: Path) -> float:
    """Return the noise scale over the states in a directory; infinite where |G|^2 is lost."""
    found = []
    for file in directory.glob("*.pt"):
        kept = torch.load(file)
        task.model.load_state_dict(kept["model"])
        task.optimizer.load_state_dict(kept["optimizer"])
        shuffled = torch.Generator().manual_seed(0)  # neighbours in a text are alike
        batches = DataLoader(
            task.train, task.batch, shuffle=True, drop_last=True, generator=shuffled
        )
        gradients = torch.stack([gradient(task, batch) for batch in batches])
        found.append(square_and_trace(gradients, task.batch))
    square, trace = (statistics.fmean(values) for values in zip(*found, strict=True))
    return trace / square if square > 0 else math.inf


def main() -> None:
    """Print the noise scales."""
    torch.set_num_threads(1)
    task = TASKS[os.environ["TASK"]]()
    print(json.dumps([noise_examples(task, Path(directory)) for directory in sys.argv[1:]]))


if __name__ == "__main__":
    main()
