"""A zone that does not answer hides no other, and nothing of it is taken to have ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud import compute_v1

from autoscaler.domain.errors import QuotaExceeded, Unavailable
from autoscaler.domain.instance import CloudState
from providers.gcp.listing import InstanceLists
from providers.gcp.provider import GcpProvider
from tests.conformance.provider import OURS, find
from tests.fakes.faults import Fault, When
from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import GcpWorld, error_of, name_of

OTHER = "us-central1-b"
SMALL_THERE = f"gpu/g2-standard-4/{OTHER}/on-demand"
LIST = "compute.instances.aggregatedList"
LIST_ONE = "compute.instances.list"


def states(provider: GcpProvider) -> dict[str, CloudState]:
    return {one.id: one.state for one in provider.instances()}


@pytest.fixture
def provider(world: GcpWorld) -> GcpProvider:
    return world.connect()


@pytest.fixture
def here(world: GcpWorld, provider: GcpProvider) -> str:
    return provider.launch(world.request("1")).id


@pytest.fixture
def there(world: GcpWorld, provider: GcpProvider) -> str:
    """One in the other zone, which falls silent once it has been seen to run."""
    launched = provider.launch(world.request("2", SMALL_THERE)).id
    world.wait_until(lambda: states(provider)[launched] is CloudState.RUNNING)
    world.project.unreachable.add(OTHER)
    return launched


def test_others_are_known_and_what_is_silent_is_as_last_seen(
    world: GcpWorld, provider: GcpProvider, here: str, there: str
) -> None:
    for one in (here, there):
        lifecycle.take(world.project, name_of(one))
    world.pass_time(3000.0)
    assert states(provider) == {here: CloudState.TERMINATED, there: CloudState.RUNNING}
    (trouble,) = provider.condition().silent_troubles
    assert f"instances of {OTHER} are as last seen" in trouble and "instances.list" in trouble
    world.project.unreachable.clear()
    assert states(provider)[there] is CloudState.TERMINATED
    assert provider.condition().silent_troubles == ()
    ended = find(provider, there)
    assert ended is not None and ended.ended_seconds is not None
    assert world.clock.now() - ended.ended_seconds > 2900.0


def test_each_zone_is_asked_once_where_all_at_once_fails(
    world: GcpWorld, provider: GcpProvider, here: str, there: str
) -> None:
    world.project.calls.clear()
    provider.instances()
    zones = [sent.parameters["zone"] for sent in world.project.of(LIST_ONE)]
    assert len(zones) == len(set(zones)) and {*zones} >= {"us-central1-a", OTHER}
    assert world.project.calls[LIST] == 1


def test_without_an_answer_of_any_nothing_is_known(
    world: GcpWorld, provider: GcpProvider, here: str, there: str
) -> None:
    provider.instances()
    assert provider.condition().silent_scopes
    for action in (LIST, LIST_ONE):
        world.faults.add(Fault(action, code="backendError", status=503, times=None))
    assert isinstance(error_of(provider.instances), Unavailable)
    assert provider.condition().silent_scopes == {}  # each trouble is reported once


def test_a_zone_that_has_not_answered_yet_is_not_empty(world: GcpWorld, here: str) -> None:
    """Buy nothing until all zones have been listed."""
    later = world.connect()
    later.offers()
    world.project.unreachable.add(OTHER)
    assert isinstance(error_of(later.instances), Unavailable)
    assert isinstance(error_of(lambda: later.launch(world.request("3"))), Unavailable)
    assert world.alive() == [here]
    world.project.unreachable.clear()
    later.launch(world.request("3"))
    assert len(world.alive()) == 2


def test_in_a_silent_zone_what_may_have_been_launched_keeps_its_place(
    fake: FakeGcp, tmp_path: Path
) -> None:
    world = GcpWorld(fake, tmp_path, max_instances=1)
    provider = world.connect()
    provider.instances()
    world.faults.add(Fault("compute.instances.insert", When.LOST_AFTER, times=1))
    error_of(lambda: provider.launch(world.request("1", SMALL_THERE)))
    world.project.unreachable.add(OTHER)
    world.pass_time(600.0)
    provider.instances()
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), QuotaExceeded)
    world.project.unreachable.clear()
    assert len(provider.instances()) == 1


def test_a_list_may_name_the_zones_that_it_lacks(world: GcpWorld) -> None:
    warning = compute_v1.Warning(code="UNREACHABLE", message="it is away")
    page = compute_v1.InstanceAggregatedList(
        items={
            "zones/us-central1-a": compute_v1.InstancesScopedList(),
            f"zones/{OTHER}": compute_v1.InstancesScopedList(warning=warning),
            "zones/asia-east1-a": compute_v1.InstancesScopedList(warning=warning),
        }
    )
    calls: Any = SimpleNamespace(project=world.name, instances=lambda wanted: [page])
    answers = InstanceLists(world.settings, OURS, calls).answers(known=())
    assert answers.keys() == {"us-central1-a", OTHER}
    assert answers["us-central1-a"] == []
    assert isinstance(answers[OTHER], Unavailable) and "it is away" in str(answers[OTHER])
