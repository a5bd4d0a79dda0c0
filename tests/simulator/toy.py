"""An invented application on two kinds of machine, and offers of them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile, read_profiles

APPLICATION = "toy"
INITIAL_BATCH, MAXIMUM_BATCH = 16, 256
EPOCHS, EPOCH_STEPS = 5, 2000
DEVICE_BATCHES = (4, 16, 64)
# Seconds per example on one device of each kind, and seconds per synchronisation.
SPEED = {"slow": 0.004, "fast": 0.001}
SYNC_SECONDS = 0.01


def write_profile(directory: Path) -> Path:
    """Write the files of the application."""
    folder = directory / APPLICATION
    folder.mkdir(parents=True)
    for kind, example_seconds in SPEED.items():
        _write(folder / f"placements-{kind}.csv", _placements(example_seconds))
    for batch in (INITIAL_BATCH, MAXIMUM_BATCH):
        _write(folder / f"validation-{batch}.csv", _run())
    return directory


def profiles(directory: Path) -> dict[str, Profile]:
    """Read the application's profile as the simulator does."""
    return read_profiles(write_profile(directory))


def offer(kind: str, purchase: Purchase = Purchase.ON_DEMAND, hazard: float = 0.0) -> Offer:
    """Return an offer of machines with two devices of the kind."""
    return Offer(
        id=f"{kind}-{purchase}",
        provider="toys",
        instance_type=kind,
        zone="here",
        purchase=purchase,
        devices=2,
        device_kind=kind,
        usd_per_hour=Decimal("1.20") if kind == "slow" else Decimal("6.00"),
        boot_seconds=30.0,
        network_bytes_per_second=1e9,
        reclaims_per_hour=hazard,
    )


def equipment(*offers: Offer) -> dict[str, Equipment]:
    """Return the equipment of each offer, by its id."""
    return {sold.id: Equipment(sold, sold.device_kind) for sold in offers}


def _placements(example_seconds: float) -> Iterable[str]:
    yield "placement,local_bsz,step_time,sync_time"
    for placement in ("1", "2", "11", "22", "111", "222", "1111", "2222"):
        sync = SYNC_SECONDS * (len(placement) if placement != "1" else 0.01)
        for batch in DEVICE_BATCHES:
            yield f"{placement},{batch},{0.02 + example_seconds * batch + sync},{sync}"


def _run() -> Iterable[str]:
    yield "progress,iteration,metric,grad_sqr,grad_var"
    for epoch in range(1, EPOCHS + 1):
        yield f"{epoch * EPOCH_STEPS},{epoch * EPOCH_STEPS},0.5,1.0,{4.0 * epoch}"


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
