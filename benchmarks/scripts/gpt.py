"""A small GPT and random tokens, for the benchmarks that run on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

# The vocabulary of GPT-2, rounded up to a multiple of 128.
_VOCABULARY = 50_304
# Logits of so many tokens are computed at once: those of a whole batch would fill a GPU.
_CHUNK_TOKENS = 8_192


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a GPT; `context` counts tokens."""

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int = _VOCABULARY


SHAPES = {
    "tiny": Shape(layers=2, heads=2, width=32, context=16, vocabulary=128),
    "124M": Shape(layers=12, heads=12, width=768, context=1024),
    "1B": Shape(layers=18, heads=16, width=2048, context=1024),
}


class Block(nn.Module):
    """Causal attention and two linear layers, each after a LayerNorm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the hidden states after this block."""
        batch, tokens, width = hidden.shape
        of_heads = (batch, tokens, self.heads, width // self.heads)
        joined = self.inputs(self.before_attention(hidden))
        query, key, value = (
            part.view(of_heads).transpose(1, 2) for part in torch.split(joined, width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.outputs(mixed.transpose(1, 2).reshape(batch, tokens, width))
        changed: Tensor = hidden + self.layers(self.before_layers(hidden))
        return changed


class Gpt(nn.Module):
    """A GPT whose forward pass returns the mean loss of the next tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return the mean loss of each token but the first; the vocabulary's weights are tied."""
        inputs, targets = sequences[:, :-1], sequences[:, 1:].reshape(-1)
        places = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.tokens(inputs) + self.positions(places)
        hidden = self.norm(self.blocks(hidden)).flatten(0, 1)
        chunks = torch.split(hidden, _CHUNK_TOKENS), torch.split(targets, _CHUNK_TOKENS)
        pieces = zip(*chunks, strict=True)
        losses = [checkpoint(self._loss, *piece, use_reentrant=False) for piece in pieces]
        return torch.stack(losses).sum() / len(targets)

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = functional.linear(hidden, self.tokens.weight)
        return functional.cross_entropy(logits, targets, reduction="sum")


class RandomTokens(Dataset[Tensor]):
    """The same random sequences every time; a batch of them is taken in one piece."""

    def __init__(self, shape: Shape, sequences: int) -> None:
        generator = torch.Generator().manual_seed(0)
        size = (sequences, shape.context + 1)
        self._sequences = torch.randint(shape.vocabulary, size, generator=generator)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> Tensor:
        return self._sequences[index]

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return self._sequences[torch.as_tensor(indices)]


def as_it_is(batch: Any) -> Any:
    """Return a batch that `RandomTokens` gives in one piece: a `collate_fn`."""
    return batch


def gpt_on(device: torch.device, name: str, seed: int = 0) -> Gpt:
    """Return the GPT of that name in 32-bit floats, the same for each seed."""
    torch.manual_seed(seed)
    with device:
        return Gpt(SHAPES[name])


def mean_loss(model: nn.Module, batch: Tensor, device: torch.device) -> Tensor:
    """Return the mean loss of a batch, computed in bfloat16."""
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss: Tensor = model(batch.to(device, non_blocking=True))
    return loss
