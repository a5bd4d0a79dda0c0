"""A model of padded sequences in 64 bits, trained by the mean over all tokens of a step."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

from autoscaler.training import session

PADDING, TOKENS, LONGEST = -1, 12, 9
EXAMPLES = 96
BATCH = 16
STEP_SECONDS = 0.02
# Steps of fewer members than these are slow, so that the others join before the end.
MEMBERS = int(os.environ.get("MEMBERS", "1"))
STEP_SECONDS_ALONE = 1.0


class Sequences(Dataset[torch.Tensor]):
    """Sequences of very different lengths; some have no token to predict at all."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.tokens = torch.randint(0, TOKENS, (EXAMPLES, LONGEST), generator=generator)
        lengths = torch.randint(0, LONGEST + 1, (EXAMPLES,), generator=generator)
        lengths[BATCH : 2 * BATCH] = 1  # a step without any token to predict
        for number, length in enumerate(lengths.tolist()):
            self.tokens[number, length:] = PADDING

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index]


class Predictor(nn.Module):
    """Prediction of the next token from the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Embedding(TOKENS, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, TOKENS)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(tokens.clamp(min=0))
        return logits


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Predictor().double()
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the mean loss over the tokens to predict, NaN without any, and their number."""
    targets = tokens[:, 1:]
    present = targets != PADDING
    losses = nn.functional.cross_entropy(
        model(tokens[:, :-1]).transpose(1, 2), targets.clamp(min=0), reduction="none"
    )
    return (losses * present).sum() / present.sum(), int(present.sum())


def main() -> None:
    model, optimizer = made()
    members = 1
    settings = {"max_grad_norm": 1.0} if os.environ.get("CLIP") else {}
    with (
        Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", "")).open("a") as trace,
        session(model, optimizer, Sequences(), batch_size=BATCH, shuffle=False, **settings) as job,
    ):
        for tokens in job.batches(epochs=int(os.environ["EPOCHS"])):
            time.sleep(STEP_SECONDS if members >= MEMBERS else STEP_SECONDS_ALONE)
            loss, count = loss_of(job.model, tokens)
            step = job.step(loss, weight=None if os.environ.get("UNWEIGHTED") else count)
            members = step.members
            line = {
                "step": step.number,
                "committed": step.committed,
                "skipped": step.skipped,
                "members": step.members,
                "loss": job.mean(step.loss),
                "norm": None if step.gradient_norm is None else float(step.gradient_norm),
                "weights": float(
                    sum(parameter.detach().sum() for parameter in model.parameters())
                ),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()


if __name__ == "__main__":
    sys.exit(main())
