"""Membership of trainings without torchft: the rules, and the server that applies them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.roster import (
    Ask,
    MemberHeartbeat,
    Notice,
    QuorumReply,
    answer_from,
    call_from,
    line_of,
)
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.order import LighthouseSpec
from autoscaler.lighthouse.roster import Roster
from autoscaler.lighthouse.server import RosterServer
from tests.builders.ports import free_port


def ask(roster: Roster, name: str, world: str = "", has_failed: bool = False) -> None:
    roster.hear(MemberHeartbeat(name, f"{name}:1", Ask(world, has_failed)))


def world_of(roster: Roster, *names: str) -> QuorumReply:
    """Let fresh members form a world."""
    for name in names:
        roster.hear(MemberHeartbeat(name, f"{name}:1"))
    for name in names:
        ask(roster, name)
    orders = roster.orders()
    assert set(orders) == set(names)
    (order,) = set(orders.values())
    return order


def test_members_of_one_world_meet_at_the_first_ones_store() -> None:
    order = world_of(Roster("x"), "a", "b", "c")
    assert (order.members, order.store) == (("a", "b", "c"), "a:1")


def test_a_world_that_nobody_leaves_or_joins_stays() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    ask(roster, "a", order.world)
    assert roster.orders() == {}, "b lives and has not asked"
    roster.hear(MemberHeartbeat("b", "b:1"))
    assert roster.orders() == {}, "a sign of life is no ask"
    ask(roster, "b", order.world)
    assert roster.orders() == {"a": order, "b": order}


def test_those_who_stay_and_those_who_come_make_another_world() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    roster.forget("a")
    ask(roster, "c")
    assert roster.orders() == {}, "b has not asked"
    ask(roster, "b", order.world)
    after = roster.orders()["b"]
    assert after.members == ("b", "c")
    assert after.world != order.world


def test_a_failure_with_nobody_lost_makes_another_world_of_the_same_members() -> None:
    roster = Roster("x")
    order = world_of(roster, "a", "b")
    ask(roster, "a", order.world)
    ask(roster, "b", order.world, has_failed=True)
    after = roster.orders()["a"]
    assert after.members == order.members
    assert after.world != order.world


def test_worlds_of_a_server_that_was_here_before_are_other_worlds() -> None:
    old = world_of(Roster("x"), "a", "b")
    roster = Roster("y")
    ask(roster, "a", old.world)
    ask(roster, "b", old.world)
    assert roster.orders()["a"].world != old.world


@given(st.data())
def test_whatever_happens_the_living_come_together_in_one_world(data: st.DataObject) -> None:
    roster, worlds = Roster("x"), dict[str, str]()
    for number in range(data.draw(st.integers(1, 6), label="members")):
        worlds[f"m{number}"] = ""
    for _ in range(40):
        for name, world in worlds.items():
            ask(roster, name, world, data.draw(st.booleans(), label="has failed"))
        orders = roster.orders()
        assert set(orders) == set(worlds)
        assert len(set(orders.values())) == 1
        worlds = {name: order.world for name, order in orders.items()}
        assert orders["m0"].members == tuple(worlds)
        if len(worlds) > 1 and data.draw(st.booleans(), label="one is lost"):
            lost = data.draw(st.sampled_from(sorted(worlds.keys() - {"m0"})), label="lost")
            del worlds[lost]
            roster.forget(lost)
    assert len(set(worlds.values())) == 1


@pytest.mark.parametrize(
    "call", [MemberHeartbeat("a", "h:1"), MemberHeartbeat("a", "h:1", Ask("w", has_failed=True))]
)
def test_calls_and_orders_survive_the_line(call: MemberHeartbeat) -> None:
    order = QuorumReply("w", ("b", "c"), "h:2")
    assert call_from(line_of(call)) == call
    assert answer_from(line_of(order)) == order
    assert answer_from(line_of(Notice(("a", "b")))) == Notice(("a", "b"))


def test_the_server_drops_who_is_silent_or_talks_nonsense() -> None:
    port = free_port()
    place = LighthouseSpec("127.0.0.1", port, 0.0, 0.3, Engine.ROSTER)

    async def story() -> list[QuorumReply | Notice]:
        served = asyncio.create_task(RosterServer(place).serve())
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.01)
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", port)
        _, wild = await asyncio.open_connection("127.0.0.1", port)
        silent.write(line_of(MemberHeartbeat("silent", "s:1")))
        wild.write(b'{"name": "wild", "ask": 3}\n[]\n')
        call = MemberHeartbeat("a", "a:1", Ask(""))
        while not silent_reader.at_eof():
            writer.write(line_of(replace(call, ask=None)))
            await asyncio.wait({asyncio.ensure_future(silent_reader.read(1))}, timeout=0.05)
        writer.write(line_of(call))
        answers = [answer_from(await reader.readline())]
        while not isinstance(answers[-1], QuorumReply):
            answers.append(answer_from(await reader.readline()))
        for each in (writer, silent, wild):
            each.close()
        served.cancel()
        return answers

    *notices, order = asyncio.run(story())
    assert isinstance(order, QuorumReply) and order.members == ("a",)
    assert notices[-2:] == [Notice(("silent", "a")), Notice(("a",))]
