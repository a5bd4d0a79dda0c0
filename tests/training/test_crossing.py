"""Sums of gradients over ranks and instances: collectives, values, overlap with backward."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.training.collectives.crossing import GradientSums, WorkQueue
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.collectives.routes import (
    Collective,
    Leg,
    Scope,
    can_use_rails,
    route,
    shard_length,
)
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.state.fingerprint import Fingerprint
from tests.nursery import Order, nursery
from tests.training.alone import opened, script
from tests.training.fleet import SCRIPTS, imported
from tests.training.scripts.crossing import in_one_place

ALL, WITHIN, ACROSS = Collective.ALL_REDUCE, Scope.INSTANCE, Scope.RAIL
REDUCE = Leg(Collective.REDUCE, WITHIN)
BROADCAST = Leg(Collective.BROADCAST, WITHIN)
SCATTER = Leg(Collective.REDUCE_SCATTER, WITHIN, on_shard=True)
GATHER = Leg(Collective.ALL_GATHER, WITHIN, on_shard=True)


@pytest.mark.parametrize(
    ("ranks", "instance", "local_rank", "has_rails", "legs"),
    [
        ((1,), 0, 0, True, ()),
        ((4,), 0, 2, True, (Leg(ALL, WITHIN),)),
        ((1, 1, 1), 1, 0, True, (Leg(ALL, ACROSS),)),
        ((2, 2), 1, 1, True, (SCATTER, Leg(ALL, ACROSS, on_shard=True), GATHER)),
        ((2, 2), 1, 0, False, (REDUCE, Leg(ALL, ACROSS), BROADCAST)),
        ((2, 2), 1, 1, False, (REDUCE, BROADCAST)),
        ((4, 2), 0, 0, True, (REDUCE, Leg(ALL, ACROSS), BROADCAST)),
        ((4, 2), 1, 1, True, (REDUCE, BROADCAST)),
        ((4, 1), 1, 0, True, (Leg(ALL, ACROSS),)),
    ],
)
def test_routes(ranks, instance: int, local_rank: int, has_rails: bool, legs) -> None:
    assert route(ranks, instance, local_rank, has_rails) == legs


def test_rails_need_several_instances_with_equally_many_ranks() -> None:
    usable = [ranks for ranks in [(8,), (1, 1), (8, 8), (8, 4), (2, 2, 2)] if can_use_rails(ranks)]
    assert usable == [(8, 8), (2, 2, 2)]


def test_shards_hold_the_whole_bucket() -> None:
    for length in (1, 7, 8, 9):
        assert length <= 8 * shard_length(length, 8) < length + 8


@pytest.mark.parametrize(
    ("ranks", "has_rails"),
    [((2,), False), ((2, 2), True), ((2, 2), False), ((2, 1), True), ((1, 1), True)],
)
def test_gradients_are_those_of_one_place(
    tmp_path: Path, ranks: tuple[int, ...], has_rails: bool
) -> None:
    """Also with unused parameters, accumulation, clipping and a GradScaler."""
    processes = []
    places = [(at, local) for at, count in enumerate(ranks) for local in range(count)]
    for instance, local in places:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "DIRECTORY": str(tmp_path),
            "RANKS": ",".join(map(str, ranks)),
            "INSTANCE": str(instance),
            "LOCAL": str(local),
            "RAILS": str(int(has_rails)),
        }
        log = tmp_path / f"log{instance}-{local}"
        order = Order((str(SCRIPTS / "crossing.py"),), log, environment)
        processes.append((nursery(*imported(None)).start(order), log))
    for process, log in processes:
        assert process.wait(60) == 0, log.read_text()
    expected = in_one_place(len(places))
    for rank in range(len(places)):
        for step, (ours, theirs) in enumerate(
            zip(torch.load(tmp_path / f"found{rank}"), expected, strict=True)
        ):
            assert ours.keys() == theirs.keys(), step
            for name, value in ours.items():
                assert torch.allclose(value, theirs[name], rtol=1e-6, atol=1e-9), (step, name)
    assert "of_none.weight" not in expected[0]


class Events:
    """Events in order; tests wait for some of them."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._changed = threading.Condition()

    def add(self, event: str) -> None:
        with self._changed:
            self.order.append(event)
            self._changed.notify_all()

    def wait_for(self, event: str, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: event in self.order, seconds)


def _layers(events: Events) -> nn.Module:
    """Return three layers with a bucket for the last and one for the others.

    The gradient of the first layer is computed once the first sum has begun, or after 30 s.
    """
    model = nn.Sequential(*(nn.Linear(600, 600, bias=False) for _ in range(3))).float()

    def note(number: int) -> None:
        if number == 0:
            events.wait_for("sum begins 0", 30.0)
        events.add(f"gradient {number}")

    for number, layer in enumerate(model):
        layer.weight.register_hook(lambda grad, number=number: note(number))
    return model


def _delayed(events: Events, until: str, seconds: float) -> Callable[[torch.Tensor], PendingSum]:
    """A sum that is under way until something has happened, `seconds` at most."""

    def sum_in_place(tensor: torch.Tensor) -> None:
        number = sum(event.startswith("sum begins") for event in events.order)
        events.add(f"sum begins {number}")
        if number == 0:
            events.add("in time" if events.wait_for(until, seconds) else "too late")
        tensor.mul_(2.0)
        events.add(f"sum ends {number}")

    return lambda tensor: _begun(lambda: sum_in_place(tensor))


def _begun(sum_in_place: Callable[[], None]) -> PendingSum:
    """Return a sum that a thread makes from now on, as gloo's threads do."""
    thread = threading.Thread(target=sum_in_place, daemon=True)
    thread.start()
    return PendingSum(thread.join)


@pytest.mark.usefixtures("group")
def test_a_bucket_is_on_its_way_while_the_next_ones_gradients_are_computed() -> None:
    events = Events()
    model = _layers(events)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    across = _delayed(events, until="gradient 0", seconds=30.0)
    reducer = Reducer(model, SystemClock(), across, Preconditioner(optimizer))
    reducer.take_route((1, 1), 0)
    reducer.model(torch.ones(2, 600)).sum().backward()
    reducer.end_sums()
    events.add("step goes on")
    reducer.close()
    assert "in time" in events.order
    places = {event: place for place, event in enumerate(events.order)}
    assert places["gradient 2"] < places["sum begins 0"] < places["gradient 0"]
    assert places["gradient 0"] < min(places["sum ends 0"], places["sum begins 1"])
    assert {"sum ends 0", "sum ends 1"} < {*events.order[: places["step goes on"]]}
    plain = nn.Sequential(*(nn.Linear(600, 600, bias=False) for _ in range(3)))
    plain.load_state_dict(model.state_dict())
    plain(torch.ones(2, 600)).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, 2 * theirs.grad)


@pytest.mark.usefixtures("group")
def test_only_what_the_step_waits_for_counts_as_synchronisation() -> None:
    events, clock = Events(), VirtualClock()
    model = nn.Sequential(*(nn.Linear(600, 600, bias=False) for _ in range(3)))
    # The first gradient comes when the sum of the others has ended: that one is hidden.
    model[0].weight.register_hook(lambda grad: events.wait_for("5.0", 30.0) and None)

    def sum_in_place(tensor: torch.Tensor) -> None:
        is_first = not events.order
        clock.advance(5.0 if is_first else 3.0)
        events.add(str(clock.now()))

    reducer = Reducer(
        model,
        clock,
        lambda tensor: _begun(lambda: sum_in_place(tensor)),
        Preconditioner(torch.optim.SGD(model.parameters(), lr=0.1)),
    )
    reducer.take_route((1, 1), 0)
    reducer.model(torch.ones(2, 600)).sum().backward()
    reducer.end_sums()
    clock.advance(1.0)
    with reducer.timed_wait():
        clock.advance(0.5)
    assert events.order == ["5.0", "8.0"]
    assert reducer.take_waited_seconds() == pytest.approx(3.0 + 0.5)
    assert reducer.take_waited_seconds() == 0.0
    reducer.close()


@pytest.mark.usefixtures("group")
def test_what_goes_wrong_beside_the_backward_pass_is_raised_by_it() -> None:
    def lost(tensor: torch.Tensor) -> PendingSum:
        raise RuntimeError("a rank of the instance is lost")

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reducer = Reducer(model, SystemClock(), lost, Preconditioner(optimizer))
    reducer.take_route((1, 1), 0)
    with pytest.raises(RuntimeError, match="a rank of the instance is lost"):
        reducer.model(torch.ones(2, 4)).sum().backward()
    reducer.close()


def test_work_is_done_in_order() -> None:
    aside, done = WorkQueue(torch.device("cpu")), []
    tensor = torch.zeros(1)
    futures = [
        aside.begin(tensor, lambda number=number: done.append(number)) for number in range(9)
    ]
    assert all(future.wait() is tensor for future in futures)
    assert done == list(range(9))
    aside.stop()


@pytest.mark.usefixtures("group")
def test_gradients_lie_in_the_buckets() -> None:
    """Use no extra memory for gradients."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reducer = Reducer(model, SystemClock(), None, Preconditioner(optimizer))
    reducer.model(torch.ones(2, 4)).sum().backward()
    storages = {each.grad.untyped_storage().data_ptr() for each in model.parameters()}
    assert len(storages) == 1
    reducer.close()


def test_gradients_travel_in_16_bits_where_that_is_asked_for() -> None:
    seen = []

    def twice(tensor: torch.Tensor) -> PendingSum:
        seen.append(tensor.dtype)
        tensor.mul_(2)
        return PendingSum()

    crossing = GradientSums(None, twice, torch.bfloat16)
    crossing.take_route((1, 1), 0)
    exact = torch.linspace(-1, 1, 101)
    buffer = exact.clone()
    crossing.sum(buffer)
    assert (seen, buffer.dtype) == ([torch.bfloat16], torch.float32)
    assert torch.allclose(buffer, 2 * exact, rtol=0.005)
    assert not torch.equal(buffer, 2 * exact)


@pytest.mark.usefixtures("group")
def test_buckets_and_their_type_are_part_of_the_fingerprint() -> None:
    def fingerprint(hidden: int, **changes: bool) -> Fingerprint:
        model = nn.Sequential(nn.Linear(4, hidden), nn.Linear(hidden, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(64, 4))
        _, parts = opened(script(model, optimizer, data, **changes))
        settings = parts.replica._settings
        parts.reducer.close()
        return settings.fingerprint

    assert fingerprint(8).buckets == fingerprint(8).buckets
    assert fingerprint(8).buckets != fingerprint(9).buckets
    assert fingerprint(8).settings != fingerprint(8, bf16_gradients=True).settings
    assert fingerprint(8).settings != fingerprint(8, static_graph=True).settings
