from __future__ import annotations

from collections.abc import Iterable, Sequence

from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.policies.pools.pool import pool_of
from autoscaler.policies.pools.projection import Projection, Size, most_measured
from tests.conformance.pool_policy import machine, pool_snapshot
from tests.economics.cases import model

PARTS = pool_of(pool_snapshot(offers=(machine(0, 4), machine(1, 8, "fast")))).by_kind()
RATE = {"card": 1.0, "fast": 3.0}


def rates(found: ThroughputModel, sizes: Sequence[Size]) -> list[float]:
    """Each machine more costs a half of what the devices bring."""
    rate = RATE[found.device_kind]
    return [rate * devices / machines for machines, devices in sizes]


def projection(card: Iterable[Size], fast: Iterable[Size]) -> Projection:
    models = {
        kind: model(kind=kind, measured=own) for kind, own in (("card", card), ("fast", fast))
    }
    return Projection(models, PARTS, rates)


def test_scaling_is_that_of_the_kind_measured_on_most_devices() -> None:
    found = projection(card=[(2, 8)], fast=[(1, 1)])
    assert found.on("card", [(1, 2), (2, 8)]) == [2.0, 4.0]
    # Eight devices lie on one machine of the fast kind, and on two of the other.
    assert found.on("fast", [(1, 1), (1, 8)]) == [3.0, 12.0]


def test_what_was_measured_on_several_devices_stands() -> None:
    found = projection(card=[(2, 8)], fast=[(1, 2)])
    assert found.on("fast", [(1, 8)]) == [24.0]


def test_a_kind_that_was_not_measured_is_as_the_other() -> None:
    found = projection(card=[(1, 1)], fast=[])
    assert found.on("fast", [(1, 4)]) == [4.0]
    assert projection(card=[], fast=[]).on("fast", [(1, 4)]) == [12.0]


def test_most_measured() -> None:
    assert most_measured(None) == most_measured(model(measured=())) == 0
    assert most_measured(model(measured=[(1, 4), (2, 2)])) == 4
