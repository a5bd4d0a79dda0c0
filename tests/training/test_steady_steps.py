"""Steps at which nobody joins, leaves or is lost cost no call to the lighthouse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from autoscaler.clock import SystemClock
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.supervisor import find_torchft
from autoscaler.training.members.job_ranks import JobRanks
from autoscaler.training.members.peers import MembershipEngine, QuorumSettings
from autoscaler.training.members.roster_line import RosterLine
from autoscaler.training.members.roster_quorum import RosterQuorum
from autoscaler.training.members.rounds import ReplicaRow
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.fleet import Lighthouse, Roster
from tests.training.together import GLOO, at_once

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STEPS, STEPS_PER_ROUND = 1000, 10
DELAY_SECONDS = 0.05


class Calls:
    """Delayed calls of training threads to the lighthouse."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **named: Any) -> Any:
            self.threads.append(threading.current_thread().name)
            time.sleep(DELAY_SECONDS)
            return call(*arguments, **named)

        return slow


@pytest.fixture(params=list(Engine))
def lighthouse(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lighthouse]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    kind = Lighthouse if request.param is Engine.QUORUM else Roster
    lighthouse = kind(tmp_path / "lighthouses")
    yield lighthouse
    lighthouse.end()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(RosterLine, "ask", calls.counted(RosterLine.ask))
    if find_torchft() is not None:
        from autoscaler.training.members.quorum import _ObservedClient as Client

        monkeypatch.setattr(Client, "_quorum", calls.counted(Client._quorum))
        monkeypatch.setattr(Client, "__getattr__", calls.counted(Client.__getattr__))
    return calls


def _member(lighthouse: Lighthouse, name: str) -> tuple[JobRanks, MembershipEngine, TrainingState]:
    model = torch.nn.Linear(2, 1)
    state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1), None, Counters())
    settings = QuorumSettings(lighthouse.address, name, "127.0.0.1", "s", 1.5, 30.0, GLOO)
    peers: MembershipEngine
    if isinstance(lighthouse, Roster):
        peers = RosterQuorum(settings, SystemClock(), state)
    else:
        from autoscaler.training.members.quorum import Quorum

        peers = Quorum(settings, SystemClock(), state)
    return JobRanks(peers, state), peers, state


def _row(peers: MembershipEngine) -> ReplicaRow:
    return ReplicaRow(
        1, 1, 1, 0, peers.is_lighthouse_there, 0, 32, 0, 0, sees_change=peers.sees_change
    )


def test_steady_steps_ask_the_lighthouse_nothing(lighthouse: Lighthouse, calls: Calls) -> None:
    members = [_member(lighthouse, name) for name in ("first", "second")]

    def begin(job_ranks: JobRanks, peers: MembershipEngine) -> int:
        return len(job_ranks.exchange(lambda: _row(peers)).rows)

    def together() -> list[int]:
        return at_once(
            [lambda job_ranks=c, peers=p: begin(job_ranks, peers) for c, p, _ in members]
        )

    deadline = time.monotonic() + 60.0
    while together() != [2, 2]:
        assert time.monotonic() < deadline, "the members have not met"
    while any(peers.sees_change for _, peers, _ in members) and time.monotonic() < deadline:
        together()
    calls.threads.clear()

    def train(job_ranks: JobRanks, peers: MembershipEngine, state: TrainingState) -> int:
        for step in range(STEPS):
            if step % STEPS_PER_ROUND == 0:
                begin(job_ranks, peers)
            state.counters.step += job_ranks.commit([1.0]).committed
        return state.counters.step

    steps = at_once([lambda member=member: train(*member) for member in members])
    assert [step >= STEPS for step in steps] == [True, True]
    assert calls.threads == []
    for _, peers, _ in members:
        peers.leave()
