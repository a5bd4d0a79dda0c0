"""Training of a small GPT that FSDP2 shards over the devices of each replica.

`python train.py` runs it on one core, `torchrun --nproc-per-node 2 train.py` on two, which hold
half of the model each. The same script is elastic under Castor.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import Dataset

from autoscaler.training import replica_mesh, session

CONTEXT = 64


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text as inputs, with the same windows one character later as targets."""

    def __init__(self, text: str, examples: int) -> None:
        self.characters = sorted(set(text))
        number = {character: index for index, character in enumerate(self.characters)}
        self._text = torch.tensor([number[character] for character in text])
        self._examples = examples
        self._stride = (len(text) - CONTEXT - 1) // examples

    def __len__(self) -> int:
        return self._examples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self._stride
        window = self._text[start : start + CONTEXT + 1]
        return window[:-1], window[1:]


class CharacterGPT(nn.Module):
    """Decoder-only transformer over characters."""

    def __init__(self, characters: int, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, characters)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.characters(text) + self.places
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        logits: Tensor = self.head(hidden.flatten(0, 1))  # one row for each character
        return logits


def main() -> None:
    """Train, and print the loss every 50 steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--examples", type=int, default=4096, help="examples in an epoch")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    windows = Windows(Path(argparse.__file__).read_text(), arguments.examples)
    model = CharacterGPT(len(windows.characters), width=64, layers=2)
    mesh = replica_mesh()  # the ranks of this replica; it creates their process group
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)  # after fully_shard
    loss_function = nn.CrossEntropyLoss()
    with session(model, optimizer, windows, batch_size=32, max_grad_norm=1.0) as job:
        for inputs, targets in job.batches(epochs=arguments.epochs):
            loss = loss_function(job.model(inputs), targets.flatten())
            step = job.step(loss)
            if job.every(steps=50):  # after the same step on all ranks
                mean = job.mean(step.loss)
                if job.decides:
                    print(f"step {step.number}: loss {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
