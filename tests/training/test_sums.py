"""Sums over instances: what they give, and what becomes of those that fail."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import torch

from autoscaler.clock import SystemClock
from autoscaler.training.collectives import gradient_groups as gradients
from autoscaler.training.collectives import world
from autoscaler.training.collectives.gradient_groups import HostGradients, HostWork
from autoscaler.training.collectives.sums import Sums
from tests.training.scripts.fake_nccl import FakeNccl
from tests.training.together import GLOO, TIMEOUT_SECONDS, Members

NCCL = functools.partial(FakeNccl, timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture(autouse=True)
def _on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.fixture(params=[GLOO, NCCL], ids=["gloo", "nccl"])
def members(request: pytest.FixtureRequest) -> Iterator[Members]:
    members = Members(3, request.param)
    members.meet()
    yield members
    members.close()


def _summed(sums: Sums) -> tuple[list[float], list[float], bool]:
    numbers, gradients = torch.ones(2, dtype=torch.float64), torch.ones(3)
    sums.numbers(numbers)
    sums.gradients(gradients).wait()
    return numbers.tolist(), gradients.tolist(), sums.are_whole()


def test_numbers_and_gradients_are_summed_over_all_members(members: Members) -> None:
    assert members.on_each(_summed) == [([3.0] * 2, [3.0] * 3, True)] * 3
    members.meet()
    assert members.on_each(_summed) == [([3.0] * 2, [3.0] * 3, True)] * 3


def test_a_member_that_gives_up_ends_the_sums_of_all_until_they_meet_again(
    members: Members,
) -> None:
    members.sums[0].abandon()
    assert [whole for _, _, whole in members.on_each(_summed)] == [False] * 3
    assert all(sums.has_failed for sums in members.sums)
    members.meet()
    assert [whole for _, _, whole in members.on_each(_summed)] == [True] * 3


def test_a_sum_that_a_silent_member_holds_up_ends_once_the_lighthouse_misses_it(
    members: Members,
) -> None:
    """Its connections stay, as those of a machine that has lost its network."""
    members.lost.add(2)
    first, second = members.sums[:2]
    gradients = [torch.ones(3), torch.ones(3)]
    waits = [
        threading.Thread(target=lambda pair=pair: pair[0].gradients(pair[1]).wait(), daemon=True)
        for pair in zip((first, second), gradients, strict=True)
    ]
    for wait in waits:
        wait.start()
    for wait in waits:
        wait.join(TIMEOUT_SECONDS - 2.0)
        assert not wait.is_alive(), "the sum has lasted to its limit"
    assert not first.are_whole() and not second.are_whole()
    first.gradients(torch.ones(3)).wait()


@pytest.mark.parametrize("few", [True, False])
def test_numbers_are_summed_alike_whether_few_or_many(
    members: Members, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    monkeypatch.setattr(world, "_FEW_NUMBERS", 100 if few else 0)
    ring = []
    monkeypatch.setattr(
        world, "begin_sum", lambda *given: ring.append(given) or gradients.begin_sum(*given)
    )
    rows = [torch.full((2, 4), 0.1 * 3**place, dtype=torch.float64) for place in range(3)]
    of_member = dict(zip(members.sums, rows, strict=True))
    assert members.on_each(lambda sums: sums.numbers(of_member[sums])) == [True] * 3
    assert rows[0][0].tolist() == pytest.approx([1.3] * 4)
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2]), "to the last bit"
    assert len(ring) == (0 if few else 3)


def test_a_late_member_that_is_heard_is_waited_for(members: Members) -> None:
    """Wait for a member that sends heartbeats while it evaluates."""
    late = members.sums[2]

    def summed(sums: Sums) -> tuple[list[float], list[float], bool]:
        if sums is late:
            time.sleep(1.5)
        return _summed(sums)

    assert members.on_each(summed) == [([3.0] * 2, [3.0] * 3, True)] * 3


def test_a_gpus_gradients_go_through_the_hosts_memory_and_come_back() -> None:
    members = Members(2, _copying)
    members.meet()
    assert members.on_each(_summed) == [([2.0] * 2, [2.0] * 3, True)] * 2
    members.sums[0].abandon()
    assert [whole for _, _, whole in members.on_each(_summed)] == [False, False]
    members.close()


@pytest.mark.parametrize(
    ("device", "across", "kind"),
    [
        ("cpu", "nccl", "HostGradients"),
        ("mps", "nccl", "HostGradients"),
        ("cuda:1", "gloo", "HostGradients"),
        ("cuda:1", "nccl", "NcclGradients"),
    ],
)
def test_nccl_carries_the_gradients_of_cuda_devices_alone(
    monkeypatch: pytest.MonkeyPatch, device: str, across: str, kind: str
) -> None:
    for name in ("HostGradients", "NcclGradients"):
        monkeypatch.setattr(gradients, name, lambda *_, name=name: name)
    form = gradients.gradients_of(torch.device(device), across, timedelta(seconds=1))
    store: Any = None
    assert form(store, 0, 2, None) == kind


def test_alone_every_sum_is_there_already() -> None:
    members = Members(1)
    members.meet()
    assert members.on_each(_summed) == [([1.0] * 2, [1.0] * 3, True)]
    members.close()


class _Refusing(HostGradients):
    """A group of which nothing can be asked any more, as torchft's is after its abort."""

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        raise AssertionError("process group not initialized")


class _Reporting(FakeNccl):
    """A group whose sums end as they should, and that reports an error afterwards."""

    def error(self) -> Exception | None:
        return RuntimeError("NCCL reports REMOTE_ERROR")


@pytest.mark.parametrize("kind", ["raises", "reports"])
def test_whatever_error_a_gradient_group_has_fails_the_step_and_nothing_more(kind: str) -> None:
    members = Members(2, _refusing if kind == "raises" else _Reporting)
    members.meet()
    assert [whole for _, _, whole in members.on_each(_summed)] == [False, False]
    members.close()


class _Copying(HostGradients):
    """A group that takes every tensor for a GPU's."""

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        return HostWork(self._group, tensor, self._timeout)


def _copying(store: Any, index: int, count: int, control: Any) -> _Copying:
    return _Copying(control, timedelta(seconds=TIMEOUT_SECONDS))


def _refusing(store: Any, index: int, count: int, control: Any) -> _Refusing:
    return _Refusing(control, timedelta(seconds=TIMEOUT_SECONDS))


class _Hours(SystemClock):
    """A clock on which a second lasts more than an hour."""

    def monotonic(self) -> float:
        return super().monotonic() * 5000.0


def test_a_member_that_evaluates_is_awaited_for_hours_while_it_is_heard() -> None:
    members = Members(2, clock=_Hours())
    members.meet()
    others = threading.Thread(target=members.sums[0].gather)
    others.start()
    time.sleep(1.5)
    assert others.is_alive() and not members.sums[0].has_failed
    members.sums[1].gather()
    others.join(30)
    assert not others.is_alive() and not members.sums[0].has_failed
    evicted = threading.Thread(target=members.sums[0].gather)
    evicted.start()
    members.lost.add(1)
    evicted.join(30)
    assert not evicted.is_alive() and members.sums[0].has_failed
    members.close()


def test_a_world_is_given_up_when_a_member_is_lost_before_it_has_formed() -> None:
    members = Members(2, forming_seconds=600.0)
    first, second = members.places(2)
    lost = threading.Event()
    waiting = threading.Timer(0.2, lost.set)
    waiting.start()
    with pytest.raises(RuntimeError, match="lost before its world had formed"):
        members.sums[0].enter(first, lost.is_set)
    assert members.sums[0].has_failed
    with suppress(RuntimeError):  # the other comes late: the world is abandoned, not kept
        members.sums[1].enter(second, lambda: False)
    members.meet()
    assert [whole for _, _, whole in members.on_each(_summed)] == [True] * 2
    members.close()


def test_a_store_whose_host_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_STORE_TIMEOUT", timedelta(seconds=600))
    members = Members(1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="lost before its world had formed"):
            members.sums[0].enter(world.Meeting(address, "world", 0, 2))
    members.close()
