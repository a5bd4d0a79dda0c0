"""A script with two workers that is killed, exits inside its session, or forks a child."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import psutil
import torch

from autoscaler.training import session


def main(end: str) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    data = [torch.ones(1)] * 64
    with session(model, optimizer, data, batch_size=4, num_workers=2) as job:
        for number, inputs in enumerate(job.batches(epochs=2)):
            if number == 1:
                print(*(child.pid for child in psutil.Process().children()), flush=True)
                if end == "kill":
                    time.sleep(60)
                if end == "exit":
                    sys.exit(0)
                if end == "fork":
                    fork()
            job.step(job.model(inputs).mean())
    print("trained", flush=True)


def fork() -> None:
    """Fork children of both usual kinds while workers of this process run."""
    child = multiprocessing.get_context("fork").Process(target=print, args=("child",))
    child.start()
    child.join()
    if other := os.fork():
        os.waitpid(other, 0)
    else:
        os._exit(0)


main(sys.argv[1])
