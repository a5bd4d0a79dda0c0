"""Who trains together where torchft is missing: the rules, and the server that applies them."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.roster import (
    Ask,
    Call,
    Notice,
    Order,
    OrderKind,
    answer_from,
    call_from,
    line_of,
)
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.order import LighthouseOrder
from autoscaler.lighthouse.roster import Roster
from autoscaler.lighthouse.server import RosterServer


def ask(roster: Roster, name: str, origin: str | None = None, step: int = 0, **more: bool) -> None:
    roster.hear(Call(name, f"{name}:1", Ask(origin or name, step, **more)))


def world_of(roster: Roster, *names: str) -> Order:
    """Let fresh members form a world."""
    ask(roster, names[0], step=1)
    for name in names[1:]:
        ask(roster, name)
    if len(names) > 1:
        assert roster.orders() == {names[0]: Order(OrderKind.PUBLISH)}
        ask(roster, names[0], step=1, has_published=True)
        assert set(roster.orders()) == set(names[1:])
        for name in names[1:]:
            ask(roster, name, names[0], step=1)
    orders = roster.orders()
    assert set(orders) == set(names)
    (order,) = set(orders.values())
    assert order.kind is OrderKind.GO
    return order


def test_members_of_one_world_meet_at_the_first_ones_store() -> None:
    order = world_of(Roster("x"), "a", "b", "c")
    assert (order.members, order.store) == (("a", "b", "c"), "a:1")


def test_a_world_that_nobody_leaves_or_joins_stays() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    ask(roster, "a", order.origin, 9)
    assert roster.orders() == {}, "b lives and has not asked"
    roster.hear(Call("b", "b:1"))
    assert roster.orders() == {}, "a sign of life is no ask"
    ask(roster, "b", order.origin, 9)
    assert roster.orders() == {"a": order, "b": order}


def test_those_who_stay_go_on_with_what_they_have_in_memory() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b", "c")
    ask(roster, "b", order.origin, 9, has_failed=True)
    ask(roster, "c", order.origin, 9, has_failed=True)
    roster.forget("a")
    after = roster.orders()["b"]
    assert after.kind is OrderKind.GO
    assert after.members == ("b", "c")
    assert after.origin != order.origin


def test_one_who_missed_the_last_step_loads_what_the_other_publishes() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b", "c")
    ask(roster, "b", order.origin, 9, has_failed=True)
    ask(roster, "c", order.origin, 10)
    roster.forget("a")
    assert roster.orders() == {"c": Order(OrderKind.PUBLISH)}
    ask(roster, "c", order.origin, 10, has_published=True)
    load = Order(OrderKind.LOAD, origin="c", step=10, members=("c",))
    assert roster.orders() == {"b": load, "c": load}


def test_a_failure_with_nobody_lost_makes_another_world_of_the_same_members() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    ask(roster, "a", order.origin, 9)
    ask(roster, "b", order.origin, 9, has_failed=True)
    after = roster.orders()["a"]
    assert (after.kind, after.members) == (OrderKind.GO, order.members)
    assert after.origin != order.origin


def test_a_publisher_that_is_lost_is_replaced() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    for name in ("a", "b"):
        ask(roster, name, order.origin, 9)
    ask(roster, "c")
    assert roster.orders() == {"a": Order(OrderKind.PUBLISH)}
    roster.forget("a")
    assert roster.orders() == {"b": Order(OrderKind.PUBLISH)}


def test_worlds_of_a_server_that_was_here_before_are_other_worlds() -> None:
    old = world_of(Roster("x"), "a", "b")
    roster = Roster("y")
    ask(roster, "a", old.origin, 9)
    ask(roster, "b", old.origin, 9)
    assert roster.orders()["a"].origin != old.origin


@given(st.data())
def test_whatever_happens_the_living_come_together_with_one_state(data: st.DataObject) -> None:
    roster, states, published = Roster("x"), dict[str, tuple[str, int]](), set[str]()
    for number in range(data.draw(st.integers(1, 6), label="fresh members")):
        states[f"m{number}"] = (f"m{number}", data.draw(st.integers(0, 3), label="step"))
    for _ in range(40):
        for name, (origin, step) in states.items():
            if roster._asks.get(name) is None:
                ask(roster, name, origin, step, has_published=name in published)
        orders = roster.orders()
        for name, order in orders.items():
            if order.kind is OrderKind.PUBLISH:
                published.add(name)
            elif order.kind is OrderKind.LOAD:
                states[name] = (order.origin, order.step)
        if all(order.kind is OrderKind.GO for order in orders.values()):
            break
        if len(states) > 1 and data.draw(st.booleans(), label="one is lost"):
            lost = data.draw(st.sampled_from(sorted(states)), label="lost")
            del states[lost]
            roster.forget(lost)
    assert set(orders) == set(states)
    assert len(set(states.values())) == 1
    assert {order.members for order in orders.values()} == {tuple(roster._asks)}


@pytest.mark.parametrize(
    "call", [Call("a", "h:1"), Call("a", "h:1", Ask("a", 3, has_published=True))]
)
def test_calls_and_orders_survive_the_line(call: Call) -> None:
    order = Order(OrderKind.LOAD, "b", 7, ("b", "c"), "h:2")
    assert call_from(line_of(call)) == call
    assert answer_from(line_of(order)) == order
    assert answer_from(line_of(Notice(("a", "b")))) == Notice(("a", "b"))


def test_the_server_drops_who_is_silent_or_talks_nonsense() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = LighthouseOrder("127.0.0.1", port, 0.0, 0.3, Engine.RESTART)

    async def story() -> list[Order | Notice]:
        served = asyncio.create_task(RosterServer(place).serve())
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.01)
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", port)
        _, wild = await asyncio.open_connection("127.0.0.1", port)
        silent.write(line_of(Call("silent", "s:1")))
        wild.write(b'{"name": "wild", "ask": 3}\n[]\n')
        call = Call("a", "a:1", Ask("a", 0))
        while not silent_reader.at_eof():
            writer.write(line_of(replace(call, ask=None)))
            await asyncio.wait({asyncio.ensure_future(silent_reader.read(1))}, timeout=0.05)
        writer.write(line_of(call))
        answers = [answer_from(await reader.readline())]
        while not isinstance(answers[-1], Order):
            answers.append(answer_from(await reader.readline()))
        for each in (writer, silent, wild):
            each.close()
        served.cancel()
        return answers

    *notices, order = asyncio.run(story())
    assert isinstance(order, Order) and order.members == ("a",)
    assert notices[-2:] == [Notice(("silent", "a")), Notice(("a",))]
