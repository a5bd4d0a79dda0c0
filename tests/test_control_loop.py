"""Loop that ticks, its watch, its test writes, and the health routes over them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Scope

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.control_loop import ControlLoop, Pauses, StoreTest
from autoscaler.domain.errors import StoreError
from autoscaler.loop_watch import DEAD_SECONDS, LONG_TICK_SECONDS, LoopState, LoopWatch
from autoscaler.service.access.request_gate import bearer_token
from autoscaler.service.health import FRESH_SECONDS, Health, HealthGate


async def is_hers(scope: Scope) -> bool:
    """Return whether a request has the token of the one person who is known."""
    return bearer_token(scope) == "hers"


class Watched:
    """Health over a watch and a store's test, on a virtual clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1000.0)
        self.watch = LoopWatch(self.clock, environment={})
        self.error: StoreError | None = None
        self.test = StoreTest(self._write, self.clock)
        self.role = "leader"
        self._gate = HealthGate(PlainTextResponse("beyond"), self.health, is_hers)

    def _write(self) -> None:
        if self.error is not None:
            raise self.error

    def health(self) -> Health:
        return Health(self.role, self.watch.state(), self.test.error, self.test.age_seconds())

    def tick(self, succeeded: bool = True) -> None:
        self.watch.begin()
        self.test.repeat()
        self.watch.end(succeeded)

    def request(self, path: str, method: str = "GET", authorization: str = "") -> httpx.Response:
        """Return the answer to a request."""

        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self._gate)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                headers = {"Authorization": authorization} if authorization else {}
                return await client.request(method, path, headers=headers)

        return asyncio.run(answer())

    def codes(self) -> tuple[int, int]:
        """Return the status of `/livez` and `/readyz`."""
        return self.request("/livez").status_code, self.request("/readyz").status_code


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_controller_is_ready_once_it_has_ticked_and_written(watched: Watched) -> None:
    assert watched.codes() == (200, 503)
    watched.tick()
    assert watched.codes() == (200, 200)
    watched.role = "follower"
    assert watched.codes() == (200, 503)


def test_a_stuck_tick_makes_it_unready_and_then_dead(watched: Watched) -> None:
    watched.tick()
    watched.watch.begin()
    watched.clock.advance(FRESH_SECONDS + 1)
    assert watched.codes() == (200, 503)
    watched.clock.advance(DEAD_SECONDS)
    assert watched.codes() == (503, 503)


def test_ticks_that_fail_are_no_readiness_but_life(watched: Watched) -> None:
    watched.tick()
    for _ in range(20):
        watched.clock.advance(10.0)
        watched.tick(succeeded=False)
    assert watched.codes() == (200, 503)


def test_a_store_that_refuses_writes_makes_it_unready_until_one_succeeds(
    watched: Watched,
) -> None:
    watched.tick()
    watched.error = StoreError("store castor.db: disk is full")
    watched.clock.advance(11.0)
    watched.tick()
    assert watched.codes() == (200, 503)
    watched.error = None
    watched.tick()
    assert watched.codes() == (200, 503), "writes are tested every 10 s"
    watched.clock.advance(11.0)
    watched.tick()
    assert watched.codes() == (200, 200)


@pytest.mark.parametrize("authorization", ["", "Bearer guessed", "Basic hers", "Bearer"])
def test_others_than_people_hear_no_details(watched: Watched, authorization: str) -> None:
    watched.error = StoreError("store castor.db: disk is full")
    watched.tick()
    for path in ("/livez", "/readyz"):
        reply = watched.request(path, authorization=authorization)
        assert reply.json().keys() == {"status"}
    assert watched.request("/readyz").json() == {"status": "failing"}


def test_a_person_hears_the_reasons(watched: Watched) -> None:
    watched.error = StoreError("store castor.db: disk is full")
    watched.tick()
    watched.clock.advance(3.0)
    reply = watched.request("/readyz", authorization="Bearer hers").json()
    assert reply["obstacles"] == ["store castor.db: disk is full"]
    assert (reply["role"], reply["tick_age_seconds"]) == ("leader", 3.0)


def test_other_paths_and_methods_are_not_for_the_gate(watched: Watched) -> None:
    assert watched.request("/v1/fleet").text == "beyond"
    assert watched.request("/livez", "POST").text == "beyond"


def test_a_long_tick_is_recorded_once_with_the_stack_of_its_thread() -> None:
    clock, texts = VirtualClock(), []
    watch = LoopWatch(clock, texts.append, {})
    is_hanging, may_end = threading.Event(), threading.Event()

    def hang_in_a_call_to_a_cloud() -> None:
        watch.begin()
        is_hanging.set()
        may_end.wait(60.0)
        watch.end(succeeded=True)

    thread = threading.Thread(target=hang_in_a_call_to_a_cloud)
    thread.start()
    try:
        is_hanging.wait(60.0)
        clock.advance(LONG_TICK_SECONDS - 1)
        watch.check()
        assert texts == []
        clock.advance(1.0)
        watch.check()
        watch.check()
    finally:
        may_end.set()
        thread.join()
    (text,) = texts
    assert text.startswith("a tick has lasted for 30 s")
    assert "hang_in_a_call_to_a_cloud" in text


def test_a_store_that_can_not_record_a_long_tick_does_not_end_the_watch() -> None:
    def refuse(text: str) -> None:
        raise StoreError("it hangs too")

    clock = VirtualClock()
    watch = LoopWatch(clock, refuse, {})
    watch.begin()
    clock.advance(LONG_TICK_SECONDS)
    watch.check()
    assert watch.state() == LoopState(LONG_TICK_SECONDS, None)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        receiver.settimeout(5.0)
        yield address, receiver


def test_each_tick_reports_to_the_watchdog_of_systemd(
    systemd: tuple[str, socket.socket],
) -> None:
    address, receiver = systemd
    watch = LoopWatch(VirtualClock(), environment={"NOTIFY_SOCKET": address})
    watch.begin()
    watch.end(succeeded=False)
    assert receiver.recv(100) == b"WATCHDOG=1"
    receiver.close()
    Path(address).unlink()
    watch.end(succeeded=True)  # without its receiver


def test_the_loop_goes_on_after_an_error_and_ends_when_it_may_not_tick() -> None:
    ticks: list[bool] = []
    watch = LoopWatch(VirtualClock(), environment={})

    def tick() -> bool:
        ticks.append(True)
        loop.wake.set()
        if len(ticks) == 1:
            raise ValueError("a defect")
        return True

    clock = SystemClock()
    loop = ControlLoop(tick, Pauses(60.0, 60.0), clock, watch, StoreTest(lambda: None, clock))
    loop.run(threading.Event(), lambda: len(ticks) < 3)
    assert len(ticks) == 3
    assert watch.state().tick_age_seconds is not None


def test_details_are_json(watched: Watched) -> None:
    watched.tick()
    json.dumps(watched.health().details())
