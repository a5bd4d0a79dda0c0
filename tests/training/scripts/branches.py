"""A network whose ranks take branches at random; writes hashes of its state at each step."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session

BRANCHES = 4
DROP_LAST = os.environ.get("DROP_LAST") == "1"
EXAMPLES = int(os.environ.get("EXAMPLES", "256"))
BATCH = int(os.environ.get("BATCH", "32"))
STATIC_GRAPH = os.environ.get("STATIC_GRAPH") == "1"
# With a static graph: the number of the call in which a branch is left out.
LEAVES_OUT_AT = int(os.environ.get("LEAVES_OUT_AT", "-1"))


class Branching(nn.Module):
    """BatchNorm, then one or two of several branches, chosen anew by each rank at each call.

    With a static graph all branches are taken, some of them twice. They are wide then, so that
    there are several buckets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        width = 8_000 if STATIC_GRAPH else 1
        self.branches = nn.ModuleList(nn.Linear(8, width) for _ in range(BRANCHES))
        self.calls = 0
        self.choices = random.Random(os.getpid())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        normalised = self.norm(inputs)
        taken = self.choices.sample(range(BRANCHES), self.choices.randint(1, 2))
        if STATIC_GRAPH:
            leaves_out = self.calls == LEAVES_OUT_AT
            taken = [*range(1, BRANCHES)] if leaves_out else [*taken, *range(BRANCHES)]
        self.calls += 1
        total: torch.Tensor = sum(self.branches[branch](normalised) for branch in taken)
        return total.mean(dim=1, keepdim=True)


def digest(values: dict[str, torch.Tensor]) -> str:
    whole = hashlib.sha256()
    for name in sorted(values):
        whole.update(values[name].detach().numpy().tobytes())
    return whole.hexdigest()


def rehearsal(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(EXAMPLES, 8, generator=generator),
        torch.randn(EXAMPLES, 1, generator=generator),
    )
    model = Branching()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    path = f"{os.environ['TRACE']}{os.environ.get('LOCAL_RANK', '').replace('0', '')}"
    with (
        open(path, "a") as trace,
        session(
            model,
            optimizer,
            data,
            batch_size=BATCH,
            drop_last=DROP_LAST,
            static_graph=STATIC_GRAPH,
            rehearsal=rehearsal if os.environ.get("REHEARSES") == "1" else None,
        ) as job,
    ):
        state = job._parts.state
        for inputs, targets in job.batches(epochs=int(os.environ["EPOCHS"])):
            before, buffers = state.counters.step, digest(dict(model.named_buffers()))
            time.sleep(0.01)  # others start meanwhile
            job.step(nn.functional.mse_loss(job.model(inputs), targets))
            line = {
                "step": before,
                "at": time.monotonic(),
                "committed": state.counters.step > before,
                "ended": job._parts.reducer.synchronises,
                "examples": len(inputs),
                "parameters": digest(dict(model.named_parameters())),
                "buffers_before": buffers,
                "by_rails": any(leg.on_shard for leg in job._parts.reducer.legs),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()


main()
