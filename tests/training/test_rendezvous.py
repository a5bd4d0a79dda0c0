"""Rendezvous of a gang's launchers, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from autoscaler.clock import SystemClock
from autoscaler.training.rendezvous import End, GangNode, GangRendezvous, PeerEnded
from tests.builders.ports import free_port
from tests.builders.waiting import wait_until


class Gang:
    """Rendezvous of two instances."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.members = [
            GangRendezvous(GangNode(index, 2, self.address, "job.1.1"), SystemClock())
            for index in range(2)
        ]
        with ThreadPoolExecutor() as threads:
            self.infos = list(threads.map(GangRendezvous.next_rendezvous, self.members))

    def end(self, *ends: End) -> list[bool]:
        """End the members' ranks at the same time; return whether a peer is the cause."""
        with ThreadPoolExecutor() as threads:
            return list(threads.map(GangRendezvous.end, self.members, ends))


@pytest.fixture
def gang() -> Iterator[Gang]:
    yield Gang()


def test_all_members_get_the_leaders_address_and_their_own_rank(gang: Gang) -> None:
    assert [(info.rank, info.world_size) for info in gang.infos] == [(0, 2), (1, 2)]
    gang.infos[0].store.set("key", "value")
    assert gang.infos[1].store.get("key") == b"value"
    port = int(gang.address.rpartition(":")[2])
    listening = {
        connection.laddr.ip
        for connection in psutil.Process().net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert listening == {"127.0.0.1"}


def test_ranks_that_all_end_well_have_no_cause(gang: Gang) -> None:
    assert gang.end(End.COMPLETE, End.COMPLETE) == [False, False]


@pytest.mark.parametrize("end", [End.FAILED, End.STOPPED])
def test_the_end_of_one_member_ends_the_others(gang: Gang, end: End) -> None:
    leader, follower = gang.members
    assert leader.num_nodes_waiting() == 0
    follower.end(end)

    def has_ended() -> bool:
        try:
            leader.num_nodes_waiting()
        except PeerEnded:
            return True
        return False

    wait_until(has_ended, "the end of the leader's ranks")


def test_only_the_member_that_fails_reports_a_failure(gang: Gang) -> None:
    assert gang.end(End.STOPPED, End.FAILED) == [False, True], "the leader was stopped"


def test_a_leader_is_not_complete_without_the_others(gang: Gang) -> None:
    assert gang.end(End.COMPLETE, End.STOPPED) == [True, False]
