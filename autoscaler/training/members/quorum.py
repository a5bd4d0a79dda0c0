"""Membership of a job's replicas by torchft, which only this module uses.

torchft (PyTorch's fault-tolerance library) maintains a *quorum*. Replica groups join and leave a
running job, and the process group is rebuilt. A joiner receives its state from a peer. A step in
which a peer died is not committed. Four things differ from torchft's examples:

* The leader of an instance is its only member. Instances with different numbers of devices can
  then train together, which torchft's rank-to-rank groups can't.
* The quorum is requested at a join, a leave or a loss, not every step. A thread reads from the
  lighthouse's status page whose heartbeats it receives; a lost peer also makes a sum fail.
  Whether a step is whole is decided here, without a request to torchft's server.
* Joiners alone begin once all replicas that the lighthouse hears are members: see `admission`.
* While the lighthouse is away, members keep their quorum. A restarted lighthouse must first
  receive all their heartbeats, as it would give the first requester a quorum of its own. A joiner
  waits as long for a lighthouse that has heard no replica yet. torchft's manager never recovers
  from a failed request (its future is cached), so it is rebuilt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torchft.manager
from torch._C._distributed_c10d import Work
from torchft import Manager
from torchft.checkpointing.transport import CheckpointTransport
from torchft.process_group import ProcessGroup, ReconfigureOptions, _rendezvous
from torchft.work import _DummyWork

from autoscaler.clock import Clock
from autoscaler.training.collectives.ports import bound_store, use_interface_of
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.collectives.world import Meeting, first_line
from autoscaler.training.members.admission import Admission
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.lighthouse_watch import LighthouseWatch
from autoscaler.training.members.peers import QuorumSettings
from autoscaler.training.members.rounds import Membership
from autoscaler.training.members.state_sync import StateSync
from autoscaler.training.state.training_state import TrainingState

_log = logging.getLogger(__name__)

_QUORUM_TIMEOUT = timedelta(seconds=5)
_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 0.1
# Peers that don't join the group within this time are lost, or see another quorum.
_FORMING_SECONDS = 5.0


class Quorum:
    """Membership of this instance in the quorum of one job; see `MembershipEngine`."""

    def __init__(
        self,
        settings: QuorumSettings,
        clock: Clock,
        state: TrainingState,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._attendance = Attendance(clock)
        self._lighthouse = LighthouseWatch(
            settings.lighthouse, settings.heartbeat_timeout_seconds, self._attendance, clock
        )
        self._admission = Admission(self._lighthouse, settings.heartbeat_timeout_seconds, clock)
        _bind_only_to(settings.bind_address)
        self._store, self._store_port = bound_store(settings.bind_address)
        self.sums = Sums(
            SumSettings(
                settings.form_gradients, _FORMING_SECONDS, settings.collective_timeout_seconds
            ),
            lambda: self._lighthouse.is_there and self._attendance.misses_member,
            clock,
        )
        self._group = _MeetingGroup(settings.bind_address, self.sums.enter)
        self.catching_up = StateSync(
            settings.bind_address, settings.peer_token, state, self.sums, clock
        )
        self._settled_worlds = 0
        self._manager: Any = None
        self._step = 0
        self._members: tuple[str, ...] = ()
        self._leaving = False
        self._own_id = ""
        self._index = 0

    @property
    def is_lighthouse_there(self) -> bool:
        """Whether the lighthouse can be reached and has had time to hear all members."""
        return self._lighthouse.is_there

    @property
    def sees_change(self) -> bool:
        """Whether the lighthouse hears others than the members, or was away and is back."""
        has_changed = self._lighthouse.was_away or self._attendance.differs
        return self._lighthouse.is_there and has_changed

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the member instances, without the random part that torchft adds."""
        return tuple(member.partition(":")[0] for member in self._members)

    def form(self, step: int) -> Membership:
        """Form the membership for the steps after `step` committed ones; see `MembershipEngine`.

        While the lighthouse is away, members whose peers all answer keep their membership.
        """
        before, healed = self._members, False
        self._step = step
        while True:
            is_settled = self._settled_worlds == self.sums.worlds and not self.sums.has_failed
            has_group = before and self._members == before and is_settled
            if not self._lighthouse.is_there and has_group:
                return Membership(len(before), self._index, healed, changed=False)
            may_ask = self._lighthouse.is_connected and (
                before or self._lighthouse.knows_the_job()
            )
            if not may_ask:
                self._clock.sleep(_RETRY_SECONDS)
            elif self._request_quorum():
                received = self._settle_state()
                healed = healed or bool(received)
                if received is not None:
                    changed = self._members != before
                    return Membership(len(self._members), self._index, healed, changed)

    def commit(self) -> bool:
        """Return whether this step's sums are whole; if not, discard them and call `form`."""
        is_whole = self.sums.are_whole()
        self._count_failures(is_whole)
        return is_whole

    def expect_leave(self) -> None:
        """Expect that a member leaves before the next `form`; its silence is then no loss."""
        self._attendance.expect_leave()

    def announce_leave(self) -> None:
        """Stop this instance's heartbeats, but keep taking part until `leave`.

        After the heartbeat timeout, the others form a quorum without this instance at once.
        Without the announcement they would wait for it for as long.
        """
        if not self._leaving and self._manager is not None:
            self._manager._manager.shutdown()
        self._leaving = True

    def leave(self) -> None:
        """Close all ports; the others continue without this instance."""
        self._lighthouse.stop()
        self._shut_down_manager()
        self.sums.close()
        self.catching_up.close()

    def _settle_state(self) -> bool | None:
        """Obtain the world's agreed state; return whether it was received, or None on failure."""
        if self._settled_worlds == self.sums.worlds:
            return False
        received = self.catching_up.settle(lambda: self._admission.may_begin(self._members))
        if received is not None:
            self._settled_worlds = self.sums.worlds
            return received
        self._count_failures(whole=False)
        if self.catching_up.patience_seconds > 0:
            self._shut_down_manager()  # the others continue without this instance meanwhile
            self._clock.sleep(self.catching_up.patience_seconds)
        return None

    def _request_quorum(self) -> bool:
        """Request a quorum once; return whether there is one."""
        try:
            if self._manager is None:
                self._manager = self._new_manager()
            self._manager.load_state_dict({"step": self._step, "batches_committed": 0})
            self._manager.start_quorum(allow_heal=False)
            if self._manager.errored() is None and not self.sums.has_failed:
                self._index = self._members.index(self._own_id)
                self._attendance.form(self._members)
                return True
            self._count_failures(whole=False)
        except (RuntimeError, TimeoutError, OSError) as error:
            _log.warning("no quorum yet: %s", first_line(error))
            self._lighthouse.doubt()
            self._shut_down_manager()
        self._clock.sleep(_RETRY_SECONDS)
        return False

    def _count_failures(self, whole: bool) -> None:
        """Update the failure count of torchft's manager, as its `should_commit` does.

        The next quorum request reports the count, and the lighthouse then makes all members
        rebuild.
        """
        if self._manager is None:
            return
        self._manager._commit_failures = 0 if whole else self._manager._commit_failures + 1

    def _new_manager(self) -> Any:
        settings = self._settings
        manager = Manager(
            pg=self._group,
            load_state_dict=None,
            state_dict=None,
            min_replica_size=1,
            use_async_quorum=False,
            timeout=timedelta(seconds=settings.collective_timeout_seconds),
            quorum_timeout=_QUORUM_TIMEOUT,
            connect_timeout=timedelta(seconds=_CONNECT_SECONDS),
            rank=0,
            world_size=1,
            store_addr=settings.bind_address,
            store_port=self._store_port,
            lighthouse_addr=settings.lighthouse,
            replica_id=settings.replica,
            hostname=settings.bind_address,
            heartbeat_interval=timedelta(seconds=settings.heartbeat_timeout_seconds / 6),
            checkpoint_transport=_NoTransport(),
        )
        self._own_id = self._store.get(torchft.manager.REPLICA_ID_KEY).decode()
        manager._client = _ObservedClient(manager, self._on_quorum)
        return manager

    def _on_quorum(self, members: tuple[str, ...]) -> bool:
        """Record the members of a new quorum, and return whether the group must be rebuilt.

        A restarted lighthouse numbers quorums from 1 again, so two different quorums may have the
        same number. After an absence all members rebuild: the members may be the same, and yet one
        of them may have been alone for a moment.
        """
        is_new = members != self._members or self._lighthouse.was_away or self.sums.has_failed
        self._members = members
        self._lighthouse.was_away = False
        return is_new

    def _shut_down_manager(self) -> None:
        manager, self._manager = self._manager, None
        if manager is None:
            return
        try:
            manager.shutdown(wait=False)
        except RuntimeError as error:
            _log.debug("shutting torchft's manager down: %s", first_line(error))


class _ObservedClient:
    """torchft's client of its own server, which reports each quorum to a callback first."""

    def __init__(self, manager: Any, on_quorum: Callable[[tuple[str, ...]], bool]) -> None:
        self._manager = manager
        self._client = manager._client
        self._on_quorum = on_quorum

    def _quorum(self, **arguments: Any) -> Any:
        result = self._client._quorum(**arguments)
        if self._on_quorum(tuple(result.replica_ids)):
            self._manager._quorum_id = -1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _NoTransport(CheckpointTransport[Any]):  # type: ignore[misc]
    """Checkpoint transport that torchft's manager requires and never uses: see `StateSync`."""

    def metadata(self) -> str:
        """Return an empty string."""
        return ""

    def send_checkpoint(self, *arguments: Any, **named: Any) -> None:
        """Do nothing."""

    def disallow_checkpoint(self) -> None:
        """Do nothing."""

    def recv_checkpoint(self, *arguments: Any, **named: Any) -> Any:
        """Do nothing."""

    def shutdown(self, wait: bool = True) -> None:
        """Do nothing."""


class _MeetingGroup(ProcessGroup):  # type: ignore[misc]
    """Process group for torchft's manager that only reports the members' meeting point.

    Each handle names a fresh part of its store. A restarted lighthouse numbers quorums from 1
    again, and outdated addresses are stored under the earlier numbers.
    """

    def __init__(self, bind_address: str, enter: Callable[[Meeting], None]) -> None:
        super().__init__(0, 1)
        self._bind_address = bind_address
        self._enter = enter
        self._rendezvous_store: Any = None
        self._port = 0
        self._handles = 0

    def get_reconfigure_handle(self) -> str:
        """Return the address of this member's store, which the first member's peers use."""
        if self._rendezvous_store is None:
            self._rendezvous_store, self._port = bound_store(self._bind_address)
        self._handles += 1
        return json.dumps(
            {
                "id": self._handle_id(),
                "store": f"{self._bind_address}:{self._port}/{self._handles}",
                "global_rank": self._global_rank,
            }
        )

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        """Enter the world of the quorum that the options describe."""
        rendezvous = _rendezvous(opts, self._handle_id())
        store, _, prefix = rendezvous.store_addr.partition("/")
        self._enter(Meeting(store, prefix, rendezvous.rank, rendezvous.world_size))
        entered: Work = _DummyWork(None)
        return entered


def _bind_only_to(address: str) -> None:
    """Make gloo, NCCL and torchft's manager server listen on `address` only."""
    use_interface_of(address)
    server = torchft.manager.ManagerServer
    if getattr(server, "is_bound", False):
        return

    def bound_server(bind: str, **arguments: Any) -> Any:
        return server(bind=f"{address}:{bind.rpartition(':')[2]}", **arguments)

    bound_server.is_bound = True  # type: ignore[attr-defined]
    torchft.manager.ManagerServer = bound_server
