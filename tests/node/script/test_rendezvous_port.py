"""Port that is reserved for the rendezvous of a gang."""

from __future__ import annotations

import socket
import sys

import pytest

from autoscaler.node.script.rendezvous_port import RendezvousPort
from autoscaler.training.collectives.ports import bound_store, reach

HOST = "127.0.0.1"
only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a port is freed before it is bound again"
)


def reserved_port(reservation: RendezvousPort) -> int:
    reservation.reserve()
    assert reservation.address is not None
    return int(reservation.address.rpartition(":")[2])


def is_free(port: int) -> bool:
    """Return whether a program that shares no ports could use a port."""
    with socket.socket() as other:
        try:
            other.bind((HOST, port))
        except OSError:
            return False
    return True


@only_linux
def test_no_other_program_gets_the_port_before_the_launcher_listens() -> None:
    reservation = RendezvousPort(HOST)
    port = reserved_port(reservation)
    reservation.hand_over()
    assert reservation.address is None
    assert not is_free(port)
    with pytest.raises(ConnectionRefusedError):
        reach(f"{HOST}:{port}")  # members ask again until the launcher listens
    store, _ = bound_store(HOST, port)
    reach(f"{HOST}:{port}")
    del store
    assert not is_free(port)


@only_linux
def test_no_system_call_picks_a_port_that_was_handed_over() -> None:
    reservation = RendezvousPort(HOST)
    port = reserved_port(reservation)
    reservation.hand_over()
    others = []
    for _ in range(500):
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, 0))
        others.append(other)
    picked = {other.getsockname()[1] for other in others}
    for other in others:
        other.close()
    assert port not in picked


def test_the_next_start_gets_another_port_and_frees_the_one_before() -> None:
    reservation = RendezvousPort(HOST)
    first = reserved_port(reservation)
    assert reserved_port(reservation) == first
    reservation.hand_over()
    reservation.hand_over()  # nothing is reserved
    second = reserved_port(reservation)
    assert second != first or sys.platform != "linux"
    assert is_free(first) or first == second
    assert not is_free(second)


def test_an_address_of_another_machine_is_refused_and_nothing_is_reserved() -> None:
    reservation = RendezvousPort("192.0.2.1")
    with pytest.raises(OSError, match=r"[Aa]ddress"):
        reservation.reserve()
    assert reservation.address is None
