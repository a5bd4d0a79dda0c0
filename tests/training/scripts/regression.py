"""Linear regression that writes down every committed step. Slowed so that a test can act."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

from autoscaler.training import session
from autoscaler.training.data.shards import ShardedDataset

EXAMPLES = int(os.environ.get("EXAMPLES", "512"))
EPOCHS = int(os.environ.get("EPOCHS", "20"))
# The example of this index is not a number; once this file exists, no loss is a number.
POISON = os.environ.get("POISON")
POISON_FILE = os.environ.get("POISON_FILE", "")
# After so many batches of its own, the rank of this number in its instance adds NaN to a loss.
BAD_LOSS = tuple(int(word) for word in os.environ.get("BAD_LOSS", "-1 0").split())
# After so many batches of its own the script stands still for so many seconds.
HANG_AFTER, HANG_SECONDS = (float(word) for word in os.environ.get("HANG", "-1 0").split())
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.02"))


class Lines(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """y = w.x + noise; an example says which one it is."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(EXAMPLES, 16, generator=generator)
        weights = torch.randn(16, generator=generator)
        self.targets = self.inputs @ weights + torch.randn(EXAMPLES, generator=generator)
        if POISON is not None:
            self.inputs[int(POISON)] = torch.nan

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.inputs[index], self.targets[index], index


def dataset() -> Dataset[tuple[torch.Tensor, torch.Tensor, int]]:
    """Return the lines, in shards of a generator each where SHARDS is set."""
    lines, shards = Lines(), int(os.environ.get("SHARDS", "0"))
    if not shards:
        return lines
    parts = [
        range(EXAMPLES * part // shards, EXAMPLES * (part + 1) // shards) for part in range(shards)
    ]
    return ShardedDataset(
        parts,
        lambda part: (lines[index] for index in part),
        lengths=[len(part) for part in parts],
        streams=8,
    )


def trace_of_rank() -> str:
    """Return the path of this rank's trace; the first rank's has no number."""
    return f"{os.environ['TRACE']}{os.environ.get('LOCAL_RANK', '').replace('0', '')}"


def rehearsal(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Return the loss of a batch, which takes REHEARSAL seconds, and write down when."""
    began = time.time()
    time.sleep(float(os.environ["REHEARSAL"]))
    Path(f"{trace_of_rank()}.rehearsal").write_text(json.dumps([began, time.time()]))
    return model(batch[0]).square().mean()


def main() -> None:
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    width = int(os.environ.get("WIDTH", "1"))
    model = torch.nn.Linear(16, width)
    kind = getattr(torch.optim, os.environ.get("OPTIMIZER", "SGD"))
    optimizer = kind(model.parameters(), lr=float(os.environ.get("LR", "0.01")))
    path = trace_of_rank()
    order = int(os.environ.get("ORDER", "0"))
    if "ORDER_BY_RANK" in os.environ:
        order += int(os.environ.get("LOCAL_RANK", "0"))
    with (
        open(path, "a") as trace,
        session(
            model,
            optimizer,
            dataset(),
            batch_size=32,
            seed=order,
            num_workers=int(os.environ.get("WORKERS", "0")),
            rehearsal=rehearsal if "REHEARSAL" in os.environ else None,
        ) as job,
    ):
        state = job._parts.state
        for taken, (inputs, targets, indices) in enumerate(job.batches(epochs=EPOCHS)):
            before = state.counters.step
            time.sleep(STEP_SECONDS * len(inputs) / 32)
            if taken == HANG_AFTER:
                time.sleep(HANG_SECONDS)
            loss = ((job.model(inputs).squeeze(-1) - targets) ** 2).mean()
            if (taken, int(os.environ.get("LOCAL_RANK", "0"))) == BAD_LOSS:
                loss = loss + torch.nan
            job.step(loss * torch.nan if os.path.exists(POISON_FILE) else loss)
            line = {
                "step": before,
                "skipped": state.counters.skipped_steps,
                "committed": state.counters.step > before,
                "batch": job.batch_size,
                "learning_rate": job._parts.stepper.learning_rate(),
                "pass": state.counters.pass_index,
                "indices": indices.tolist(),
                "weight": float(model.weight.detach().sum()),
                "weights": model.weight.detach().flatten().tolist(),
                "at": time.time(),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()
        lines = Lines()
        errors = model(lines.inputs).squeeze(-1) - lines.targets
        job.report(loss=float(errors.detach().square().mean()))


main()
