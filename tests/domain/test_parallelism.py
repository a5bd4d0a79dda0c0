"""Shards of a model: which instances hold whole copies, and the gangs that they form."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.domain.job import ParallelismSpec


@pytest.mark.parametrize(
    ("shard", "devices_used", "instances"),
    [(1, 1, 1), (1, 8, 1), (8, 8, 1), (8, 16, 1), (16, 8, 2), (16, 1, 16), (6, 2, 3)],
)
def test_a_gang_holds_one_copy_of_the_model(shard: int, devices_used: int, instances: int) -> None:
    parallelism = ParallelismSpec(shard=shard)
    assert parallelism.holds_copies(devices_used)
    assert parallelism.gang_instances(devices_used) == instances
    assert parallelism.gang_of(devices_used) == instances


@pytest.mark.parametrize(("shard", "devices_used"), [(16, 12), (8, 12), (8, 3), (4, 0)])
def test_instances_without_whole_copies_form_no_gang(shard: int, devices_used: int) -> None:
    parallelism = ParallelismSpec(shard=shard)
    assert not parallelism.holds_copies(devices_used)
    assert parallelism.gang_of(devices_used) is None
    with pytest.raises(ValueError, match=f"instances of {devices_used}"):
        parallelism.gang_instances(devices_used)


@pytest.mark.parametrize(
    "values",
    [
        {"shard": 0},
        {"shards": (4, 0)},
        {"shard": 4, "pipeline": 2},
        {"shard": 4, "near_instances": 2},
        {"auto_shard": True, "near_instances": 2},
        {"shard": 4, "shards": (4, 8)},
        {"shard": 4, "auto_shard": True},
    ],
)
def test_contradictory_shards_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|leave"):
        ParallelismSpec(**values)


def test_only_a_listed_or_automatic_shard_is_undecided() -> None:
    assert not ParallelismSpec(shard=8).is_undecided
    assert ParallelismSpec(shards=(4, 8)).is_undecided
    assert ParallelismSpec(auto_shard=True).is_undecided
