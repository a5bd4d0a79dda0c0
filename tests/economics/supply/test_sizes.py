"""Sizes that a job may hold: whole gangs within its bounds, the limits and what can be had."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.sizes import permitted_sizes
from autoscaler.economics.supply.supply import Supply, supply_of
from tests.economics.cases import devices, job, offer, snapshot


@st.composite
def gang_jobs(draw: st.DrawFn) -> tuple[JobSnapshot, Supply]:
    """Draw a job with a shard, and offers of which some hold whole copies."""
    least = draw(st.integers(1, 5))
    most = draw(st.integers(least, 40))
    bounds = InstanceBounds(least, most)
    sold = [
        offer(f"o{index}", devices=count)
        for index, count in enumerate(draw(st.lists(st.integers(1, 16), min_size=1, max_size=4)))
    ]
    if draw(st.booleans()):
        bounds = replace(bounds, maxima=(("o0", draw(st.integers(least, most))),))
    shard = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    held = None
    if draw(st.booleans()):
        held = Allocation("o0", draw(st.integers(1, most)), sold[0].devices)
    gpt = job("gpt", instances=bounds, held=held, parallelism=ParallelismSpec(shard=shard))
    refused = frozenset({"o0"}) if draw(st.booleans()) else frozenset()
    moment = snapshot(gpt, offers=sold, limits=[devices(64)], unavailable=refused)
    return gpt, supply_of(moment, fleet_jobs=draw(st.sampled_from([0, 500])))


@given(gang_jobs())
def test_sizes_are_whole_gangs_within_all_bounds(case: tuple[JobSnapshot, Supply]) -> None:
    gpt, supply = case
    sizes = permitted_sizes(gpt, supply)
    parallelism = gpt.parallelism
    rows = zip(
        sizes.offer.tolist(), sizes.instances.tolist(), sizes.devices_used.tolist(), strict=True
    )
    for index, instances, devices_used in rows:
        sold = supply.offers[index]
        assert parallelism.holds_copies(devices_used)
        assert instances % parallelism.gang_instances(devices_used) == 0
        assert instances * devices_used % parallelism.shard == 0
        assert gpt.instances.minimum <= instances <= gpt.instances.most_of(sold)
        assert instances * sold.devices <= 64
        assert instances == 1 or devices_used == sold.devices
        if sold.id in supply.unavailable:
            assert gpt.held is not None
            assert gpt.held.offer == sold.id
            assert instances <= gpt.held.instances


@given(gang_jobs())
def test_the_largest_and_smallest_gangs_are_always_considered(
    case: tuple[JobSnapshot, Supply],
) -> None:
    gpt, supply = case
    sizes = permitted_sizes(gpt, supply)
    for index, sold in enumerate(supply.offers):
        gang, least = gpt.gang_instances(sold), gpt.least_instances(sold)
        if sold.id in supply.unavailable or gang is None or least is None:
            continue
        bearable = min(gpt.most_instances(sold), gang * (64 // sold.devices // gang))
        counts = sizes.instances[sizes.offer == index].tolist()
        if bearable < least:
            assert not counts
        else:
            assert {least, bearable} <= set(counts)
            assert max(counts) == bearable


def test_twelve_devices_hold_no_copy_on_eight() -> None:
    sold = [offer("twelve", devices=12), offer("four", devices=4), offer("sixteen", devices=16)]
    gpt = job("gpt", instances=InstanceBounds(1, 5), parallelism=ParallelismSpec(shard=8))
    supply = supply_of(snapshot(gpt, offers=sold))
    sizes = permitted_sizes(gpt, supply)
    found = {
        (supply.offers[index].id, count, used)
        for index, count, used in zip(
            sizes.offer.tolist(),
            sizes.instances.tolist(),
            sizes.devices_used.tolist(),
            strict=True,
        )
    }
    assert {size for size in found if size[0] == "four"} == {("four", 2, 4), ("four", 4, 4)}
    assert not {size for size in found if size[0] == "twelve"}
    assert {size for size in found if size[0] == "sixteen" and size[1] == 1} == {
        ("sixteen", 1, 8),
        ("sixteen", 1, 16),
    }
