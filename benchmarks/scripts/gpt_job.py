"""Training of a GPT of `gpt.py` under a session: the script of the job of `gpu_job.py`.

DEVICE is cuda or cpu, MODEL the name of a GPT, BATCH the initial batch. Gradients of instances are
summed by gloo, through host memory, since the instances share one GPU.
"""

from __future__ import annotations

import os
import sys
import time

import torch
from gpt import SHAPES, RandomTokens, as_it_is, gpt_on, mean_loss

from autoscaler.training import session

EXAMPLES, EPOCHS = 1_000_000, 1_000


def main() -> None:
    """Train until the job is stopped."""
    device = torch.device(os.environ["DEVICE"])
    name = os.environ["MODEL"]
    print(f"imported at {time.time():.3f}", file=sys.stderr, flush=True)
    model = gpt_on(device, name)
    print(f"model on {device} at {time.time():.3f}", file=sys.stderr, flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    tokens = RandomTokens(SHAPES[name], min(EXAMPLES, 20_000))
    batch = int(os.environ["BATCH"])
    with session(
        model, optimizer, tokens, batch_size=batch, collate_fn=as_it_is, across="gloo"
    ) as job:
        for number, sequences in enumerate(job.batches(epochs=EPOCHS)):
            job.step(mean_loss(job.model, sequences, device))
            if number == 0:
                print(f"first step at {time.time():.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
