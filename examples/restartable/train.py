"""Plain DistributedDataParallel training of handwritten digits. It knows nothing of Castor.

`torchrun --nproc-per-node=2 train.py` runs it on one machine. It continues from its newest
checkpoint, at any number of processes: the total batch is fixed, and each rank takes its share.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 48
CHECKPOINTS = Path("checkpoints")


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 images of 64 pixels, and their labels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    return images, torch.tensor(digits.target)


def batch_of(step: int, examples: int) -> torch.Tensor:
    """Return the indices of the examples of a step, the same on all ranks."""
    steps = examples // BATCH
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(step // steps))
    first = step % steps * BATCH
    return order[first : first + BATCH]


def save(step: int, state: dict[str, object]) -> None:
    """Save a checkpoint under its step; another process never sees a part of it."""
    CHECKPOINTS.mkdir(exist_ok=True)
    unfinished = CHECKPOINTS / "unfinished"
    torch.save({"step": step, **state}, unfinished)
    unfinished.rename(CHECKPOINTS / f"step-{step:06d}.pt")


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to add to each step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    images, labels = load()
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if newest := max(CHECKPOINTS.glob("step-*.pt"), default=None):
        state = torch.load(newest, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    if rank == 0:
        host = os.environ.get("GROUP_RANK", "0")
        print(f"start at step {first}: world of {world}, host {host}", flush=True)

    for step in range(first, arguments.steps):
        mine = batch_of(step, len(labels))[rank::world]
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(arguments.pause)
        done = step + 1
        if rank == 0 and done % 50 == 0:
            print(f"step {done} of {arguments.steps}: loss {loss.item():.4f}", flush=True)
        if rank == 0 and done % arguments.save_every == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            save(done, state)

    with torch.no_grad():
        loss = nn.functional.cross_entropy(network(images), labels)
    if rank == 0:
        print(f"final loss {float(loss):.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
