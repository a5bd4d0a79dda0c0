"""Training of a small character-level GPT on a text, by default Python's own docstrings.

`python train.py [TEXT]` runs it without Castor. The same script is elastic under Castor.
"""

from __future__ import annotations

import argparse
import ast
import os
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from autoscaler.training import session


def documentation() -> str:
    """Return the docstrings of the modules of Python's standard library, joined."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(errors="replace"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
    return "\n\n".join(text for text in texts if text)


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text as inputs, with the same windows one character later as targets."""

    def __init__(self, text: str, context: int, examples: int) -> None:
        self.characters = sorted(set(text))
        number = {character: index for index, character in enumerate(self.characters)}
        self._text = torch.tensor([number[character] for character in text])
        self._context = context
        self._stride = max((len(text) - context - 1) // examples, 1)
        self._examples = min(examples, len(text) - context - 1)

    def __len__(self) -> int:
        return self._examples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self._stride
        window = self._text[start : start + self._context + 1]
        return window[:-1], window[1:]


class CharacterGPT(nn.Module):
    """Decoder-only transformer over characters."""

    def __init__(self, characters: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, text: Tensor) -> Tensor:
        positions = torch.arange(text.shape[1], device=text.device)
        hidden = self.characters(text) + self.places(positions)
        return self.head(self.blocks(hidden, mask=self.mask, is_causal=True))


def main() -> None:
    """Train, and print the loss every 100 steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", type=Path, default=os.environ.get("TEXT"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--examples", type=int, default=8192, help="examples in an epoch")
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    text = arguments.text.read_text() if arguments.text else documentation()
    windows = Windows(text, context=64, examples=arguments.examples)
    model = CharacterGPT(len(windows.characters), 64, arguments.width, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()

    with session(model, optimizer, windows, batch_size=32) as job:
        for number, (inputs, targets) in enumerate(job.batches(epochs=arguments.epochs)):
            loss = loss_function(job.model(inputs).flatten(0, 1), targets.flatten())
            job.step(loss)
            job.report(loss=loss.item())
            if number % 100 == 0 and job.decides:
                print(f"{job.progress_examples:.0f} examples: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
