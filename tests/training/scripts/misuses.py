"""A script that forks inside its session, or that calls the plain model; MISUSE says which."""

from __future__ import annotations

import os
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session

MISUSE = os.environ["MISUSE"]
AT = 20


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(320, 4), torch.randn(320, 1))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    child = None
    with session(model, optimizer, data, batch_size=32) as job:
        for number, (inputs, targets) in enumerate(job.batches(epochs=100000)):
            time.sleep(0.01)
            called = job.model
            if number == AT and MISUSE == "plain model":
                called = model
            if number == AT and MISUSE.startswith("fork"):
                child = os.fork()
                if child == 0 and MISUSE == "fork and end":
                    break
            job.step(nn.functional.mse_loss(called(inputs), targets))
            if child is not None and number == AT:
                print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


main()
