"""A state that is handed over: what arrives, and what becomes of a transfer that is disturbed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.errors import CheckpointError, MismatchError
from autoscaler.training.members import state_fetch, state_sync
from autoscaler.training.members.state_fetch import Fetch, RefusedError, StalledError
from autoscaler.training.members.state_server import StateServer
from autoscaler.training.members.state_sync import StateSync, StateVersion, furthest
from autoscaler.training.state import packed
from autoscaler.training.state.packed import ByteSequence
from autoscaler.training.state.reception import Description, StateBuffer, tensors_of
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.together import Members, at_once

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

TOKEN = "secret"
BLOCK_BYTES = 1 << 12


@pytest.fixture(autouse=True)
def _small_and_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(packed, "BLOCK_BYTES", BLOCK_BYTES)


def training(seed: int, steps: int = 0, width: int = 192) -> TrainingState:
    """A replica's state, after so many steps of Adam."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1)
    )
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.randn(8, width)).square().mean().backward()
        optimizer.step()
    return TrainingState(model, optimizer, None, Counters(step=steps))


def assert_equal(first: TrainingState, second: TrainingState) -> None:
    assert first.counters == second.counters
    pairs = zip(tensors_of(first.state_dict()), tensors_of(second.state_dict()), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def fetch_to(
    state: TrainingState, token: str = TOKEN, key: str = "key", clock: Clock | None = None
) -> Fetch:
    clock = clock or SystemClock()
    return Fetch(key, token, lambda described: state.reception(described, True), clock)


def run(fetch: Fetch, *sources: str) -> None:
    fetch.run(sources, threading.Event())


class Wire:
    """A way to a server at which bytes can be counted, slowed down, held up or cut."""

    def __init__(self, server: str, seconds_per_chunk: float = 0.0) -> None:
        host, _, port = server.rpartition(":")
        self._target = host, int(port)
        self._seconds_per_chunk = seconds_per_chunk
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.passed_bytes = 0
        self.connections = 0
        self.on_chunk: Callable[[Wire], bool] = lambda wire: True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listening.accept()
            far = socket.create_connection(self._target)
            self.connections += 1
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while chunk := source.recv(BLOCK_BYTES):
                if counts:
                    self.passed_bytes += len(chunk)
                    time.sleep(self._seconds_per_chunk)
                    if not self.on_chunk(self):
                        break
                target.sendall(chunk)
        except OSError:
            pass
        for end in (source, target):
            end.close()


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer("127.0.0.1", TOKEN)
    yield server
    server.close()


def test_a_state_arrives_whole_in_the_receivers_own_memory(server: StateServer) -> None:
    giver, taker = training(0, steps=3), training(1)
    places = [tensor.data_ptr() for tensor in tensors_of(taker.state_dict()["model"])]
    server.serve("key", giver.state_dict())
    fetch = fetch_to(taker)
    run(fetch, server.address)
    taker.load_state_dict(fetch.complete())
    assert_equal(giver, taker)
    assert [tensor.data_ptr() for tensor in tensors_of(taker.state_dict()["model"])] == places
    taken = tensors_of(taker.state_dict()["optimizer"])
    received = tensors_of(fetch.complete()["optimizer"])
    assert [tensor.data_ptr() for tensor in taken] == [tensor.data_ptr() for tensor in received]


def test_a_transfer_ends_with_its_last_byte(server: StateServer) -> None:
    """Members wait for it: no connection that is done waits before it ends."""

    class Noting(SystemClock):
        slept: ClassVar[list[float]] = []

        def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)
            super().sleep(seconds)

    giver, taker = training(0, steps=3), training(1)
    server.serve("key", giver.state_dict())
    run(fetch_to(taker, clock=Noting()), server.address)
    assert max(Noting.slept, default=0.0) < 0.1


def test_who_has_trained_keeps_its_state_until_all_of_the_other_is_there(
    server: StateServer,
) -> None:
    giver, taker, before = training(0, steps=3), training(1, steps=2), training(1, steps=2)
    server.serve("key", giver.state_dict())
    fetch = Fetch("key", TOKEN, lambda described: taker.reception(described, False), SystemClock())
    run(fetch, server.address)
    assert_equal(taker, before)
    places = [tensor.data_ptr() for tensor in tensors_of(taker.state_dict())]
    taker.load_state_dict(fetch.complete())
    assert_equal(giver, taker)
    assert [tensor.data_ptr() for tensor in tensors_of(taker.state_dict())] == places


def test_a_broken_connection_goes_on_where_it_stopped(server: StateServer) -> None:
    giver, taker = training(0, steps=1), training(1)
    server.serve("key", giver.state_dict())
    wire, cuts = Wire(server.address), iter((20_000, 60_000, 100_000))
    next_cut = [next(cuts)]

    def passes(wire: Wire) -> bool:
        if wire.passed_bytes < next_cut[0]:
            return True
        next_cut[0] = next(cuts, 10**9)
        return False

    wire.on_chunk = passes
    fetch = fetch_to(taker)
    run(fetch, wire.address)
    taker.load_state_dict(fetch.complete())
    assert_equal(giver, taker)
    again_bytes = fetch.received_bytes - fetch.size_bytes
    assert again_bytes < 3 * BLOCK_BYTES + 8_000, "more than the cut ranges was sent again"


def test_all_that_have_the_state_serve_it_and_one_that_is_lost_is_done_without() -> None:
    giver, taker = training(0, steps=1), training(1)
    servers = [StateServer("127.0.0.1", TOKEN) for _ in range(2)]
    for server in servers:
        server.serve("key", giver.state_dict())
    wires, has_served = [Wire(server.address) for server in servers], threading.Event()

    def serves_until_it_is_lost(wire: Wire) -> bool:
        if wire.passed_bytes > 10_000:
            has_served.set()
        return wire.passed_bytes < 30_000

    wires[0].on_chunk = serves_until_it_is_lost
    wires[1].on_chunk = lambda wire: wire.passed_bytes < 20_000 or has_served.wait(60.0)
    fetch = fetch_to(taker)
    run(fetch, *(wire.address for wire in wires))
    taker.load_state_dict(fetch.complete())
    assert_equal(giver, taker)
    assert all(wire.passed_bytes > 10_000 for wire in wires), "one of them served all"
    for server in servers:
        server.close()


def test_a_transfer_is_resumed_at_another_replica_with_the_same_state() -> None:
    giver, taker = training(0, steps=1), training(1)
    first, second = (StateServer("127.0.0.1", TOKEN) for _ in range(2))
    first.serve("key", giver.state_dict())
    wire = Wire(first.address)

    def stops(wire: Wire) -> bool:
        if wire.passed_bytes > 60_000:
            first.stop()
        return True

    wire.on_chunk = stops
    fetch = fetch_to(taker)
    with pytest.raises(RefusedError):
        run(fetch, wire.address)
    before_bytes = fetch.received_bytes
    second.serve("key", giver.state_dict())
    run(fetch, second.address)
    taker.load_state_dict(fetch.complete())
    assert_equal(giver, taker)
    assert fetch.received_bytes - before_bytes < fetch.size_bytes - 20_000, "it began anew"
    for server in (first, second):
        server.close()


def test_a_transfer_without_bytes_is_given_up(
    server: StateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_fetch, "STALL_SECONDS", 0.6)
    monkeypatch.setattr(state_fetch, "_SILENCE_SECONDS", 0.3)
    giver, taker = training(0, steps=1), training(1)
    server.serve("key", giver.state_dict())
    wire, holds = Wire(server.address), threading.Event()
    wire.on_chunk = lambda wire: wire.passed_bytes < 30_000 or holds.wait(30.0)
    fetch = fetch_to(taker)
    with pytest.raises(StalledError, match=r"no byte for 0\.6 s, after .* check the network"):
        run(fetch, wire.address)
    holds.set()


def test_a_state_is_given_to_holders_of_the_token_alone(server: StateServer) -> None:
    server.serve("key", training(0).state_dict())
    for token, key in (("guess", "key"), (TOKEN, "another")):
        with pytest.raises(RefusedError):
            run(fetch_to(training(1), token, key), server.address)


def test_the_state_of_another_model_is_refused_before_anything_is_overwritten(
    server: StateServer,
) -> None:
    server.serve("key", training(0, width=32).state_dict())
    taker, before = training(1), training(1)
    with pytest.raises(MismatchError, match=r"0\.weight is 192x192 here and 32x32"):
        run(fetch_to(taker), server.address)
    assert_equal(taker, before)


@pytest.mark.parametrize(("on_host", "place"), [(True, "cpu"), (False, "meta")])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_tensor_lies_on_the_receivers_own_device_or_on_the_cpu(
    on_host: bool, place: str, in_place: bool
) -> None:
    """Adam's number of steps stays on the CPU; all else comes to the device of the receiver."""
    described = Description([torch.empty(3, device="meta")], [on_host], [None])
    reception = StateBuffer([], described, torch.device("meta"), in_place)
    expected = place if in_place else "cpu"
    assert [tensor.device.type for tensor in reception.tensors] == [expected]
    assert reception.complete()[0].device.type == place


@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=20))
def test_blocks_cover_all_bytes_once(sizes: list[int]) -> None:
    row = ByteSequence([torch.zeros(size, dtype=torch.uint8) for size in sizes])
    at = 0
    for begin, end in row.blocks():
        assert begin == at < end <= begin + packed.BLOCK_BYTES
        at = end
    assert at == sum(sizes)


class Job:
    """Members in this process with a state each, who make them equal in each world."""

    def __init__(self, *states: TrainingState) -> None:
        self.states = states
        self.members = Members(len(states))
        self.catching = [
            StateSync("127.0.0.1", TOKEN, state, sums, SystemClock())
            for state, sums in zip(states, self.members.sums, strict=True)
        ]

    def settle(self, may_begin: Callable[[], bool] = lambda: True) -> list[bool | None]:
        self.members.meet()
        return at_once([lambda own=each: own.settle(may_begin) for each in self.catching])

    def close(self) -> None:
        for catching in self.catching:
            catching.close()
        self.members.close()


def slowed(catching: StateSync, seconds_per_chunk: float) -> Wire:
    """Let the state of a member come over a wire."""
    wire = Wire(catching.parts.transfer.server.address, seconds_per_chunk)
    catching.parts.transfer.server.address = wire.address
    return wire


def test_two_joiners_get_the_furthest_state_and_nobody_gets_it_twice() -> None:
    job = Job(training(0), training(1, steps=3), training(2))
    assert job.settle() == [True, False, True]
    for state in job.states:
        assert_equal(state, job.states[1])
    assert job.settle() == [False, False, False], "equal states are known to be equal"
    job.close()


def test_joiners_alone_ask_whether_they_may_begin_and_beside_a_member_they_do_not() -> None:
    job = Job(training(0), training(1))
    assert job.settle(may_begin=lambda: False) == [None, None]
    assert job.settle() == [False, True]
    job.catching[1]._is_member = False
    assert job.settle(may_begin=lambda: False) == [False, False], "a member was asked"
    job.close()


def test_a_transfer_may_last_longer_than_any_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_fetch, "_SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(state_fetch, "STALL_SECONDS", 3.0)
    monkeypatch.setattr(state_sync, "_SILENCE_SECONDS", 3.5)
    monkeypatch.setattr("tests.training.together.TIMEOUT_SECONDS", 3.0)
    job = Job(training(0, steps=1), training(1))
    slowed(job.catching[0], seconds_per_chunk=0.2)
    began = time.monotonic()
    assert job.settle() == [False, True]
    assert time.monotonic() - began > 4.0
    assert_equal(*job.states)
    job.close()


def test_a_serving_member_that_is_lost_ends_the_world_and_the_next_one_resumes() -> None:
    job = Job(training(0, steps=1), training(1))
    wire, is_noticed = slowed(job.catching[0], seconds_per_chunk=0.0), threading.Event()

    def is_lost(wire: Wire) -> bool:
        if wire.passed_bytes > 60_000:
            job.members.lost.add(0)
            is_noticed.wait(60.0)
        return True

    wire.on_chunk = is_lost
    assert job.settle() == [None, None]
    received_bytes = job.catching[1].parts.transfer.fetch.received_bytes  # type: ignore[union-attr]
    is_noticed.set()
    job.members.lost.clear()
    wire.on_chunk = lambda wire: True
    fetch = job.catching[1].parts.transfer.fetch
    assert job.settle() == [False, True]
    assert fetch is not None
    assert fetch.received_bytes - received_bytes < fetch.size_bytes - 20_000, "it began anew"
    assert_equal(*job.states)
    job.close()


def test_a_receiver_that_stalls_lets_the_others_go_and_stays_away_ever_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_fetch, "_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(state_fetch, "STALL_SECONDS", 0.4)
    job = Job(training(0, steps=1), training(1))
    holds = threading.Event()
    slowed(job.catching[0], 0.0).on_chunk = lambda wire: holds.wait(60.0)
    patience = []
    for _ in range(3):
        assert job.settle() == [None, None]
        patience.append([catching.patience_seconds for catching in job.catching])
    assert patience == [[0.0, 0.0], [0.0, 4.0], [0.0, 8.0]]
    holds.set()
    monkeypatch.setattr(state_fetch, "STALL_SECONDS", 10.0)
    assert job.settle() == [False, True]
    assert job.catching[1].patience_seconds == 0.0
    job.close()


def test_a_receiver_whose_process_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeats may go on, as those that torchft sends."""
    monkeypatch.setattr(state_sync, "_SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(state_sync, "_TICK_SECONDS", 60.0)
    job = Job(training(0, steps=1), training(1))
    hangs = threading.Event()
    job.catching[1].parts.give_to_ranks = lambda: bool(hangs.wait(3.0)) and None
    assert job.settle()[0] is None
    job.close()


def test_a_state_that_was_received_in_part_is_nobodys_to_go_on_from() -> None:
    job = Job(training(0, steps=1), training(1, steps=9))
    job.catching[1].parts.transfer.is_torn = True
    assert job.settle() == [False, True], "its steps count for nothing"
    assert_equal(*job.states)
    job.catching[1].parts.transfer.is_torn = True
    alone = Members(1)
    alone.meet()
    job.catching[1]._sums = alone.sums[0]
    with pytest.raises(CheckpointError, match="no member has all of it: start again"):
        job.catching[1].settle()
    alone.close()
    job.close()


def test_the_rank_beside_the_leader_has_the_state_before_the_others_go_on() -> None:
    job = Job(training(0, steps=1), training(1))
    order: list[Any] = []

    def give() -> None:
        time.sleep(0.3)
        order.append("given")

    job.catching[1].parts.give_to_ranks = give

    def settle(catching: StateSync) -> None:
        catching.settle()
        order.append("settled")

    job.members.meet()
    at_once([lambda catching=catching: settle(catching) for catching in job.catching])
    assert order == ["given", "settled", "settled"]
    job.close()


def test_among_states_of_equal_steps_that_of_most_members_counts() -> None:
    def standing(origin: str, step: int) -> StateVersion:
        return StateVersion(origin, step, ("",), "")

    a, b, c = standing("a", 3), standing("b", 3), standing("c", 4)
    assert furthest([a, b]) == a.key
    assert furthest([a, b, b]) == b.key
    assert furthest([a, b, b, c]) == c.key
