"""Training of the fleet's soak: a fixed batch in 64 bits; prints the loss at the end.

python soaked_job.py EPOCHS PAUSE_SECONDS
"""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import TensorDataset

from autoscaler.training import session

EXAMPLES = 256
BATCH = 16


def main() -> None:
    """Train a linear model."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 4, generator=generator, dtype=torch.float64)
    targets = inputs.sum(dim=1, keepdim=True) + torch.randn(
        EXAMPLES, 1, generator=generator, dtype=torch.float64
    )
    model = torch.nn.Linear(4, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    data = TensorDataset(inputs, targets)
    with session(model, optimizer, data, batch_size=BATCH) as job:
        for x, y in job.batches(epochs=int(sys.argv[1])):
            job.step((job.model(x) - y).square().mean())
            time.sleep(float(sys.argv[2]))
        loss = (model(inputs) - targets).square().mean()
        if job.decides:
            print(f"loss {loss.item():.15g}", flush=True)


main()
