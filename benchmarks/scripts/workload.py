"""What the scripts of the benchmarks train on."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import Dataset

WIDTH, LAYERS = 512, 4


class Noise(Dataset[torch.Tensor]):
    """The same random vectors every time."""

    def __init__(self) -> None:
        self.vectors = torch.randn(1024, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.vectors[index]


def layers() -> nn.Sequential:
    """One million parameters, the same on every rank once the seed is set."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
