"""Ends, lists, and what Compute Engine forgets."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from autoscaler.domain.errors import PermissionDenied, SpecError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG, CloudState
from providers.gcp.records import Records
from tests.conformance.provider import OURS, THEIRS, find, launch_running, state
from tests.fakes.faults import Fault
from tests.fakes.gcp import lifecycle
from tests.providers.gcp.cloud import QUICK, SMALL_SPOT, GcpWorld, error_of, name_of

DELETE = "compute.instances.delete"
LIST = "compute.instances.aggregatedList"
OPERATIONS = "compute.zoneOperations.list"
ROOM = Path(__file__).parents[3] / "providers" / "gcp"


def test_there_is_one_way_to_end_an_instance() -> None:
    """All deletes of instances are in `ProjectCalls.delete`, and all calls of it in `ending`."""
    calls = {
        path.name
        for path in ROOM.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("delete", "delete_unary", "stop_unary")
    }
    assert calls == {"calls.py", "ending.py"}


def test_what_is_not_labelled_as_ours_is_not_ended(world: GcpWorld) -> None:
    launched = launch_running(world, world.connect(), "1")
    world.project.instance(name_of(launched.id)).body["labels"]["castor-controller"] = "x"
    world.kept.unlink()
    error = error_of(lambda: world.connect().terminate([launched.id]))
    assert isinstance(error, PermissionDenied)
    assert world.project.calls[DELETE] == 0


def test_one_that_can_not_be_ended_keeps_nobody_from_being_ended(world: GcpWorld) -> None:
    provider = world.connect()
    first, second = (launch_running(world, provider, token).id for token in ("1", "2"))
    world.faults.add(
        Fault(DELETE, code="backendError", status=503, matching={"instance": name_of(first)})
    )
    assert isinstance(error_of(lambda: provider.terminate([first, second])), Unavailable)
    assert world.alive() == [first]


def test_what_is_new_and_unknown_has_not_ended(world: GcpWorld) -> None:
    world.project.lag_seconds = 10.0
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    error = error_of(lambda: provider.terminate([launched.id]))
    assert isinstance(error, Unavailable) and "too new" in str(error)
    assert world.alive() == [launched.id]


def test_what_shut_itself_down_is_deleted(world: GcpWorld) -> None:
    """Its disks would be billed for ever."""
    provider = world.connect()
    launched = launch_running(world, provider, "1")
    lifecycle.shut_down(world.project, name_of(launched.id))
    stopped_seconds = world.clock.now()
    found = find(provider, launched.id)
    assert found is not None and found.state is CloudState.STOPPING
    world.pass_time(10.0)
    found = find(provider, launched.id)
    assert found is not None and found.ended_seconds is not None
    assert found.state is CloudState.TERMINATED
    assert found.ended_seconds - stopped_seconds < 10.0
    assert world.project.remaining() == []
    assert list(provider.interruptions()) == []


def test_what_is_stopped_and_can_not_be_deleted_is_told(world: GcpWorld) -> None:
    provider = world.connect()
    launched = launch_running(world, provider, "1")
    lifecycle.shut_down(world.project, name_of(launched.id))
    world.faults.add(Fault(DELETE, code="forbidden", status=403))
    provider.instances()
    (trouble,) = provider.condition().troubles
    assert "is stopped and can't be deleted" in trouble and "allow instances.delete" in trouble
    provider.instances()
    assert provider.condition().troubles == ()


def test_pages_are_one_list(world: GcpWorld) -> None:
    world.project.page = 2
    provider = world.connect()
    for number in range(5):
        provider.launch(world.request(str(number)))
    calls = world.project.calls[LIST]
    assert len(provider.instances()) == 5
    assert world.project.calls[LIST] - calls == 3


def test_what_a_list_leaves_out_is_looked_for_before_it_has_ended(world: GcpWorld) -> None:
    provider = world.connect()
    launched = launch_running(world, provider, "1")
    world.project.instance(name_of(launched.id)).body["labels"].pop("castor-controller")
    found = find(provider, launched.id)
    assert found is not None and found.state is CloudState.RUNNING


def test_what_ended_while_nobody_looked_ended_when_it_did(world: GcpWorld) -> None:
    launched = launch_running(world, world.connect(), "1")
    taken_seconds = world.clock.now()
    world.take(launched.id)
    world.pass_time(3000.0)
    (found,) = world.connect().instances()
    assert found.ended_seconds == pytest.approx(taken_seconds + 30.0)
    world.pass_time(8000.0)
    provider = world.connect()
    assert list(provider.instances()) == []


@pytest.mark.parametrize(("code", "status"), [("backendError", 503), ("forbidden", 403)])
def test_an_end_awaits_the_operations_that_have_its_time(
    world: GcpWorld, code: str, status: int
) -> None:
    provider = world.connect()
    launched = launch_running(world, provider, "1")
    taken_seconds = world.clock.now()
    world.take(launched.id)
    world.pass_time(40.0)
    world.faults.add(Fault(OPERATIONS, code=code, status=status, times=2))
    for _ in range(2):
        assert state(provider, launched.id) is CloudState.RUNNING
        (trouble,) = provider.condition().troubles
        assert "its end is unknown until its operations are listed" in trouble
        world.pass_time(200.0)
    found = find(provider, launched.id)
    assert found is not None and found.state is CloudState.TERMINATED
    assert found.ended_seconds == pytest.approx(taken_seconds + 30.0)
    assert provider.condition().troubles == ()


def test_operations_that_fail_are_asked_once_in_a_list(world: GcpWorld) -> None:
    """Retries for each instance would hold up the list."""
    provider = world.connect()
    for launched in [launch_running(world, provider, number) for number in ("1", "2", "3")]:
        world.take(launched.id)
    world.pass_time(40.0)
    world.faults.add(Fault(OPERATIONS, code="backendError", status=503, times=None))
    for _ in range(2):
        world.project.calls.clear()
        assert len(provider.instances()) == 3
        assert world.project.calls[OPERATIONS] == 1
    assert len(provider.condition().troubles) == 3


def test_without_operations_an_end_is_when_the_instance_was_first_missing(
    world: GcpWorld,
) -> None:
    provider = world.connect()
    launched = launch_running(world, provider, "1")
    world.take(launched.id)
    world.pass_time(100.0)
    missing_seconds = world.clock.now()
    world.faults.add(Fault(OPERATIONS, code="backendError", status=503, times=None))
    assert state(provider, launched.id) is CloudState.RUNNING
    world.pass_time(QUICK.history_seconds)
    found = find(provider, launched.id)
    assert found is not None and found.state is CloudState.TERMINATED
    assert found.ended_seconds == pytest.approx(missing_seconds)


def test_without_its_records_a_controller_finds_what_there_is(world: GcpWorld) -> None:
    launched = launch_running(world, world.connect(), "1")
    world.kept.unlink()
    (found,) = world.connect().instances()
    assert (found.id, found.token, found.tags[CONTROLLER_TAG]) == (launched.id, "1", OURS)


def test_instances_of_a_lost_controller_are_told_and_adopted(world: GcpWorld) -> None:
    """Its id was in the state that was lost, and is in their labels."""
    launched = launch_running(world, world.connect(), "1")
    provider = world.connect(THEIRS)
    assert list(provider.instances()) == []
    condition = provider.condition()
    assert (condition.strangers, condition.troubles) == ({OURS: 1}, ())
    assert len(condition.stranger_troubles) == 1
    (found,) = world.connect(OURS).instances()
    assert found.id == launched.id


def test_records_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "gcp.db"
    path.write_text("no database, and long enough to be taken for one " * 100)
    with pytest.raises(SpecError, match=r"gcp\.db: the file can't be used"):
        Records(path, OURS)


def test_records_that_can_not_be_written_cost_nothing_else(world: GcpWorld) -> None:
    provider = world.connect()
    world.kept.unlink()
    world.kept.mkdir()
    launched = provider.launch(world.request("1", SMALL_SPOT))
    assert [one.id for one in provider.instances()] == [launched.id]


def test_what_is_new_has_not_ended_for_the_next_controller_either(world: GcpWorld) -> None:
    """Its records know it, and no list does yet."""
    world.project.lag_seconds = 20.0
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    provider.instances()
    (found,) = world.connect().instances()
    assert (found.id, found.state) == (launched.id, CloudState.PENDING)
    world.pass_time(20.0)
    (found,) = world.connect().instances()
    assert (found.id, found.state) == (launched.id, CloudState.RUNNING)


def test_a_launch_during_the_end_of_a_list_stays_recorded(
    world: GcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing leads the next controller to it, unless a list shows it in time."""
    provider = world.connect()
    first = launch_running(world, provider, "1")
    launched: list[str] = []

    def launch_meanwhile(ended: Iterable[str]) -> None:
        if not launched:
            launched.append(provider.launch(world.request("2")).id)

    monkeypatch.setattr(provider._ending, "forget", launch_meanwhile)
    provider.instances()
    recorded = {instance.id for instance in Records(world.kept, OURS).instances()}
    assert recorded == {first.id, *launched} and len(launched) == 1
