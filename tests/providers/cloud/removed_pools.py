"""Caps of every cloud while instances of removed or renamed pools run."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import QuotaExceeded
from autoscaler.domain.instance import LaunchRequest
from providers.base import Provider
from providers.cloud.known_prices import KnownPrices
from tests.providers.cloud.world import FakeCloud

LARGE_CAP = "30"


def rename_pool(world: FakeCloud, cap: str) -> str:
    """Rename the only pool, cap the cloud, and return the new id of its spot offer."""
    pools = world.document["pools"]
    pools["new"] = pools.pop("gpu")
    world.document["max_usd_per_hour"] = cap
    return world.spot_offer.replace("gpu/", "new/", 1)


def run_before_the_rename(world: FakeCloud) -> Decimal:
    """Launch one instance; return its largest cost for the cap, in US dollars an hour."""
    provider = world.connect("ours")
    provider.launch(world.request("1", world.spot_offer, "ours"))
    cap = world.document["max_usd_per_hour"] = "0.01"
    refusal = refusal_of(lambda: world.connect("ours").launch(later(world)))
    world.document["max_usd_per_hour"] = LARGE_CAP
    assert f"of ${cap}/h" in refusal
    return Decimal(refusal.partition("$")[2].partition("/h")[0])


def later(world: FakeCloud, token: str = "2", offer: str | None = None) -> LaunchRequest:
    return world.request(token, offer or world.spot_offer, "ours")


def refusal_of(launch: Callable[[], object]) -> str:
    with pytest.raises(QuotaExceeded) as caught:
        launch()
    return str(caught.value)


def full_disk(file: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class RemovedPools:
    @pytest.fixture
    def file(self, world: FakeCloud, tmp_path: Path) -> Path:
        path = tmp_path / "prices" / "cloud.json"
        world.prices = KnownPrices(path)
        return path

    def start_again(self, world: FakeCloud, file: Path) -> Provider:
        world.prices = KnownPrices(file)
        return world.connect("ours")

    def test_what_runs_counts_at_its_last_known_price_after_a_restart(
        self, world: FakeCloud, file: Path
    ) -> None:
        usd_per_hour = run_before_the_rename(world)
        offer = rename_pool(world, cap=f"{usd_per_hour * Decimal('1.5'):.2f}")
        provider = self.start_again(world, file)
        refusal = refusal_of(lambda: provider.launch(later(world, offer=offer)))
        assert refusal.startswith(f"max_usd_per_hour: ${usd_per_hour}/h of $")

    def test_there_is_room_for_what_the_cap_leaves(self, world: FakeCloud, file: Path) -> None:
        usd_per_hour = run_before_the_rename(world)
        offer = rename_pool(world, cap=f"{usd_per_hour * Decimal('2.5'):.2f}")
        provider = self.start_again(world, file)
        assert provider.launch(later(world, offer=offer)).offer == offer

    @pytest.mark.parametrize("content", [None, "{", "[]", '{"a": "much"}'])
    def test_what_runs_at_an_unknown_price_takes_the_whole_cap(
        self, world: FakeCloud, file: Path, content: str | None
    ) -> None:
        run_before_the_rename(world)
        offer = rename_pool(world, cap=LARGE_CAP)
        file.unlink()
        if content is not None:
            file.write_text(content)
        provider = self.start_again(world, file)
        (running,) = provider.instances()
        refusal = refusal_of(lambda: provider.launch(later(world, offer=offer)))
        assert refusal.startswith(
            f"max_usd_per_hour: the price of {running.id} is unknown and counts as all"
        )
        provider.terminate([running.id])
        world.pass_time(120.0)
        provider.instances()
        assert provider.launch(later(world, "3", offer)).offer == offer

    def test_a_full_disk_stops_no_offers_and_is_told_until_the_prices_are_saved(
        self, world: FakeCloud, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = world.connect("ours")
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", full_disk)
            offers = provider.offers()
        assert world.spot_offer in {offer.id for offer in offers}
        (trouble,) = provider.condition().troubles
        assert trouble.startswith(f"{file}: the last known prices can't be saved: ")
        provider.offers()
        assert provider.condition().troubles == ()
        assert world.spot_offer in json.loads(file.read_text())

    def test_prices_are_kept_in_decimals(self, world: FakeCloud, file: Path) -> None:
        world.connect("ours").offers()
        kept = json.loads(file.read_text())
        assert Decimal(kept[world.spot_offer]) > 0
