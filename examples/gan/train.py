"""Generator of two-dimensional points on a ring, and its critic: two optimizers on each batch.

`python train.py` runs it without Castor. The same script is elastic under Castor.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.data import TensorDataset

from autoscaler.training import session

NOISE = 8


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network of two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 64),
        nn.LeakyReLU(0.2),
        nn.Linear(64, 64),
        nn.LeakyReLU(0.2),
        nn.Linear(64, outputs),
    )


class Networks(nn.Module):
    """Generator and critic in one module, as the session sums the gradients of one."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = network(NOISE, 2), network(2, 1)

    def forward(self, name: str, inputs: Tensor) -> Tensor:
        """Call the network of this name."""
        outputs: Tensor = getattr(self, name)(inputs)
        return outputs


def ring(count: int) -> TensorDataset:
    """Return points near the unit circle."""
    generator = torch.Generator().manual_seed(0)
    angles = 2 * torch.pi * torch.rand(count, generator=generator)
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    return TensorDataset(points + 0.05 * torch.randn(count, 2, generator=generator))


@torch.no_grad()
def distance(networks: Networks) -> float:
    """Return the mean distance of generated points from the unit circle."""
    noise = torch.randn(1024, NOISE, generator=torch.Generator().manual_seed(1))
    return float((networks("generator", noise).norm(dim=1) - 1).abs().mean())


def main() -> None:
    """Train, and print the distance of generated points from the ring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    networks = Networks()
    critic = torch.optim.Adam(networks.critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    generator = torch.optim.Adam(networks.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    with session(networks, [critic, generator], ring(4096), batch_size=128) as job:
        for epoch in job.epochs(epochs):
            for (points,) in job.batches():
                fakes = job.model("generator", torch.randn(len(points), NOISE))
                real, fake = job.model("critic", points), job.model("critic", fakes.detach())
                job.step(softplus(-real).mean() + softplus(fake).mean(), optimizer=critic)
                job.step(softplus(-job.model("critic", fakes)).mean(), optimizer=generator)
            if epoch % 10 == 9:
                job.report(distance=distance(networks))
                if job.decides:
                    reached = distance(networks)
                    print(f"epoch {epoch + 1}: distance {reached:.3f} from the ring", flush=True)


if __name__ == "__main__":
    main()
