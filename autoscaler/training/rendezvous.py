"""Rendezvous of a launcher's ranks: of one instance, or of all instances of a gang.

The store of `torchrun` listens on every interface without authentication. The ranks of an instance
need theirs on the loopback interface only, and those of a gang on the leader's own address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistStoreError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from autoscaler.clock import Clock
from autoscaler.training.collectives.ports import bound_store

BACKEND: Final = "castor"
"""Name of the rendezvous among torchrun's backends."""
LOOPBACK: Final = "127.0.0.1"

_PAUSE_SECONDS: Final = 0.3
_BARRIER_PAUSE_SECONDS: Final = 0.05
_SILENCE_SECONDS: Final = 1.5
_LONGEST_SILENCE_SECONDS: Final = 20.0  # a busy or suspended machine is not lost
_LAST_READ_SECONDS: Final = 5.0
_JOIN_TIMEOUT: Final = timedelta(seconds=300)


class PeerEnded(Exception):
    """End of this instance's ranks because those of another instance of the gang ended."""


class End(StrEnum):
    """End of the ranks of one instance."""

    COMPLETE = "complete"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class GangNode:
    """One instance of a gang: `address` is that of the leader, `run_id` names the start."""

    index: int
    instances: int
    address: str
    run_id: str

    @property
    def leads(self) -> bool:
        """Whether this instance hosts the store."""
        return self.index == 0

    @property
    def host(self) -> str:
        """Host of the leader's store."""
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        """Port of the leader's store."""
        return int(self.address.rpartition(":")[2])


class LauncherWatch:
    """Exchange of states between a gang's launchers, in a thread.

    Args:
        store: connection that only this thread uses.
    """

    def __init__(self, node: GangNode, store: Store, clock: Clock) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._others = [index for index in range(node.instances) if index != node.index]
        self._beats: dict[int, tuple[int, float]] = {}
        self._ends: dict[int, End] = {}
        self._own_end: End | None = None
        self._is_written = False
        self._is_leader_lost = False
        self._has_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def peer_ended(self) -> bool:
        """Whether ranks of another instance failed or were stopped, or the leader is lost."""
        return self._is_leader_lost or self._has_bad_end

    def lost_peer(self) -> bool:
        """Return whether another instance was stopped or is lost, after a moment to notice it.

        Ranks fail at once if those of another instance disappear.
        """
        self._wait(lambda: self._was_stopped or self._have_all_ended, _SILENCE_SECONDS + 0.5)
        return self._was_stopped or self.has_silent_peer(_SILENCE_SECONDS)

    def has_silent_peer(self, seconds: float = _LONGEST_SILENCE_SECONDS) -> bool:
        """Return whether the launcher of another instance has not been heard for so long."""
        now_seconds = self._clock.monotonic()
        return any(
            now_seconds - heard_seconds > seconds
            for index, (_, heard_seconds) in self._beats.items()
            if index not in self._ends
        )

    @property
    def are_others_complete(self) -> bool:
        """Whether the ranks of all other instances ended well."""
        return set(self._ends) == set(self._others) and not self._has_bad_end

    @property
    def _has_bad_end(self) -> bool:
        return any(end is not End.COMPLETE for end in self._ends.values())

    def end(self, end: End) -> None:
        """Record the end of this instance's ranks, and end the thread.

        The leader waits until all others have recorded theirs.
        """
        with self._changed:
            self._own_end = end
            self._changed.notify_all()
        self._wait(lambda: self._is_written or self._is_leader_lost, _LAST_READ_SECONDS)
        if self._node.leads:
            self._wait(lambda: self._have_all_ended, _LAST_READ_SECONDS)
        with self._changed:
            self._has_closed = True
            self._changed.notify_all()
        # A thread that returns from the store while Python ends would abort the process.
        self._thread.join(_LAST_READ_SECONDS)

    @property
    def _was_stopped(self) -> bool:
        return self._is_leader_lost or End.STOPPED in self._ends.values()

    @property
    def _have_all_ended(self) -> bool:
        return self._is_leader_lost or len(self._ends) == len(self._others)

    def _wait(self, is_so: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(is_so, seconds)

    def _run(self) -> None:
        while not self._is_leader_lost and not self._has_closed:
            try:
                self._exchange()
            except (DistStoreError, RuntimeError):
                self._is_leader_lost = True
            with self._changed:
                self._changed.notify_all()
                is_urgent = self._own_end is not None and not self._is_written
                if not is_urgent and not self._has_closed:
                    self._changed.wait(_PAUSE_SECONDS)

    def _exchange(self) -> None:
        own_end = self._own_end
        self._store.add(f"beat/{self._node.index}", 1)
        if own_end is not None and not self._is_written:
            self._store.set(f"end/{self._node.index}", own_end)
            self._is_written = True
        for index in self._others:
            beat = self._store.add(f"beat/{index}", 0)
            if beat != self._beats.get(index, (0, 0.0))[0]:
                self._beats[index] = beat, self._clock.monotonic()
            if index not in self._ends and self._store.check([f"end/{index}"]):
                self._ends[index] = End(self._store.get(f"end/{index}").decode())


class _BarrierStore(PrefixStore):
    """Store whose waits end when a peer has; torchrun's exit barrier would wait for minutes."""

    def __init__(self, prefix: str, store: Store, watch: LauncherWatch, clock: Clock) -> None:
        super().__init__(prefix, store)
        self._watch = watch
        self._clock = clock

    def wait(self, keys: list[str], timeout: timedelta = _JOIN_TIMEOUT) -> None:
        """Wait until the keys are set.

        Raises:
            DistStoreError: the time is over, or a peer has ended without setting them.
        """
        deadline_seconds = self._clock.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            is_peer_gone = self._watch.peer_ended or self._watch.has_silent_peer()
            if is_peer_gone or self._clock.monotonic() > deadline_seconds:
                raise DistStoreError(f"{keys} are not set")
            self._clock.sleep(_BARRIER_PAUSE_SECONDS)


class LocalRendezvous(RendezvousHandler):
    """Rendezvous of a single instance, with a store that only its ranks can reach."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def get_backend(self) -> str:
        """Return the backend's name."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Whether the ranks use the same store; always true."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the rendezvous of this single instance, at once."""
        store, port = bound_store(LOOPBACK)
        self._store = store
        info = RendezvousStoreInfo(LOOPBACK, port)
        return RendezvousInfo(PrefixStore(self._run_id, store), 0, 1, info)

    def is_closed(self) -> bool:
        """Return False: the rendezvous is never closed."""
        return False

    def set_closed(self) -> None:
        """Do nothing, as no instance joins later."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no other instance joins."""
        return 0

    def get_run_id(self) -> str:
        """Return the name of this start."""
        return self._run_id

    def shutdown(self) -> bool:
        """Return True: the rendezvous ends with its process."""
        return True


class GangRendezvous(LocalRendezvous):
    """Rendezvous of a gang's instances, with a store at the leader's address."""

    def __init__(self, node: GangNode, clock: Clock) -> None:
        super().__init__(node.run_id)
        self._node = node
        self._clock = clock
        self._watch: LauncherWatch | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the rendezvous of the gang, as soon as the leader's store can be reached.

        Raises:
            RuntimeError: the store can't be opened, or not be reached in time.
        """
        node = self._node
        self._store = bound_store(node.host, node.port)[0] if node.leads else self._connection()
        watched = PrefixStore(f"{self._run_id}/watch", self._connection())
        self._watch = LauncherWatch(node, watched, self._clock)
        store = _BarrierStore(self._run_id, self._store, self._watch, self._clock)
        info = RendezvousStoreInfo(node.host, node.port)
        return RendezvousInfo(store, node.index, node.instances, info)

    def num_nodes_waiting(self) -> int:
        """Return 0.

        Raises:
            PeerEnded: the ranks of another instance ended, so that those here can't go on.
        """
        if self._watch is not None and self._watch.peer_ended:
            raise PeerEnded
        return 0

    def end(self, end: End) -> bool:
        """Record the end of this instance's ranks; return whether another's end is the cause."""
        watch = self._watch
        if watch is None:
            return False
        is_caused = end is End.FAILED and watch.lost_peer()
        watch.end(End.STOPPED if is_caused else end)
        # A follower that passed the exit barrier knows that all others are complete.
        is_incomplete = self._node.leads and not watch.are_others_complete
        return is_caused or (end is End.COMPLETE and is_incomplete)

    def _connection(self) -> TCPStore:
        node = self._node
        return TCPStore(node.host, node.port, is_master=False, timeout=_JOIN_TIMEOUT)
