"""A script that evaluates every so many steps, on one rank for long, and stops early."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session

EVERY = int(os.environ.get("EVERY", "25"))
EVALUATION_SECONDS = float(os.environ.get("EVALUATION_SECONDS", "0"))
STOP_AT = int(os.environ.get("STOP_AT", "1000000000"))
STOPS = os.environ.get("STOPS", "") == os.environ.get("LOCAL_RANK", "0")
BY_EPOCHS = os.environ.get("BY_EPOCHS") == "1"


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(320, 4), torch.randn(320, 1))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", ""))
    with path.open("a") as trace, session(model, optimizer, data, batch_size=32) as job:

        def note(**line: object) -> None:
            trace.write(json.dumps(line) + "\n")
            trace.flush()

        for epoch in job.epochs(100000):
            for inputs, targets in job.batches():
                time.sleep(0.01)
                step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
                note(step=step.number, members=step.members, committed=step.committed)
                if job.every(steps=EVERY):
                    if job.decides:
                        time.sleep(EVALUATION_SECONDS)
                    note(evaluated=step.number, mean=job.mean(2.0, weight=1))
                if STOPS and not BY_EPOCHS and step.number >= STOP_AT:
                    note(asked=step.number)
                    job.stop(f"no progress since step {STOP_AT}")
            note(epoch=epoch)
            if STOPS and BY_EPOCHS and step.number >= STOP_AT:
                job.stop("no progress in this époque")
        note(ended=step.number)


main()
