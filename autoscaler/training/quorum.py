"""The replicas of a job that train together now: the only file that knows torchft.

torchft (PyTorch's fault-tolerance library) keeps a *quorum*: replica groups join and leave a
running job, a joiner gets its state from a peer, the process group is rebuilt, a step in which a
peer died is not committed. Three things are done differently from its examples, for reasons:

* One rank of an instance, its leader, is the instance's only member. Instances with different
  numbers of devices can then train together, which torchft's rank-to-rank groups can't.
* The quorum is asked once a *round* of steps rather than every step: in between, a peer's death
  shows itself in the collective that fails. A round lasts some tenths of a second.
* While the lighthouse is away those who have a quorum go on with it, and until one that came back
  must have heard all their heartbeats: it would give the first to ask a quorum of its own. A
  joiner waits as long for one that has heard nobody yet. torchft's manager never recovers from a
  failed request (its future is cached): it is rebuilt from memory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import threading
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torchft.manager
from torch._C._distributed_c10d import AllreduceOptions
from torchft import Manager, ProcessGroupGloo, ProcessGroupNCCL

from autoscaler.clock import Clock
from autoscaler.training.peers import QuorumSettings
from autoscaler.training.ports import bound_store, use_interface_of
from autoscaler.training.rounds import Membership
from autoscaler.training.transport import PeerTransport

_log = logging.getLogger(__name__)

_QUORUM_TIMEOUT = timedelta(seconds=5)
_CONNECT_SECONDS = 5.0
_PATIENCE_SECONDS = 0.1
# Peers that don't come to build the group within this have gone, or see another quorum.
_GROUP_SECONDS = 5.0
_HEARD = re.compile(r"\[(\d+) heartbeating\]")


class Quorum:
    """Our membership in the quorum of one job; see `Peers`."""

    def __init__(
        self,
        settings: QuorumSettings,
        clock: Clock,
        device: torch.device,
        load_state: Callable[[Any], None],
        state: Callable[[], Any],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._load_state = load_state
        self._state = state
        self._lighthouse = _LighthouseWatch(
            settings.lighthouse, settings.heartbeat_timeout_seconds, clock
        )
        _open_ports_only_on(settings.bind_address)
        self._store, self._store_port = bound_store(settings.bind_address)
        self._group: Any = _group_of(device, settings)
        self._manager: Any = None
        self._step = 0
        self._members: tuple[str, ...] = ()
        self._leaving = False
        self._healed = False
        self._failed = False
        self._own_id = ""
        self._index = 0

    @property
    def is_lighthouse_there(self) -> bool:
        """The lighthouse can be reached, and has heard of us all."""
        return self._lighthouse.is_there

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the instances that are members; torchft adds a random part to each."""
        return tuple(member.partition(":")[0] for member in self._members)

    def form(self, step: int) -> Membership:
        """Agree on who takes part from step `step` on. Blocks; a joiner returns with the state
        of its peers loaded.

        While the lighthouse is away, members whose peers all answer keep the membership they
        have.
        """
        before = self._members
        self._step = step
        while True:
            has_group = before and self._members == before and not self._failed
            if not self._lighthouse.is_there and has_group:
                return Membership(len(before), self._index, healed=False, changed=False)
            may_ask = self._lighthouse.is_connected and (
                before or self._lighthouse.knows_the_job()
            )
            if not may_ask:
                self._clock.sleep(_PATIENCE_SECONDS)
            elif self._request():
                return Membership(
                    len(self._members), self._index, self._healed, self._members != before
                )

    def all_reduce(self, tensor: torch.Tensor, timeout_seconds: float | None = None) -> None:
        """Sum `tensor` over the replicas, in place.

        After a failure `has_failed` until the next `form`: the step can't be committed, what
        `tensor` holds is of no use, and further calls do nothing.
        """
        if len(self._members) == 1 or self._failed:
            return
        options = AllreduceOptions()  # a sum, unless it is told otherwise
        options.timeout = timedelta(
            seconds=timeout_seconds or self._settings.collective_timeout_seconds
        )
        try:
            self._group.allreduce([tensor], options).wait()
        except RuntimeError as error:
            _log.warning("a peer does not answer: %s", _first_line(error))
            self._failed = True

    @property
    def has_failed(self) -> bool:
        """A collective has failed since the quorum was formed."""
        return self._failed

    def commit(self) -> bool:
        """Whether this step's gradients are whole. False: throw them away and `form` again."""
        if self._manager is not None and not self._leaving:
            if self._failed:
                self._manager.report_error(RuntimeError("a collective has failed"))
            self._failed = not self._manager.should_commit()
        self._step += not self._failed
        return not self._failed

    def announce_leave(self) -> None:
        """Stop our heartbeats, but go on taking part until `leave`.

        Once they have been missed for the heartbeat timeout, the others form a quorum without
        us at once; if we just left, they would wait for us for as long.
        """
        if not self._leaving and self._manager is not None:
            self._manager._manager.shutdown()
        self._leaving = True

    def leave(self) -> None:
        """Close all ports. The others go on without us."""
        self._lighthouse.stop()
        self._shut_down_manager()
        self._group.abort(errored=False)

    def _request(self) -> bool:
        """Ask for a quorum once; whether there is one now."""
        self._healed = False
        try:
            if self._manager is None:
                self._manager = self._new_manager()
            self._manager.start_quorum()
            self._failed = self._manager.errored() is not None
            if not self._failed:
                self._step = self._manager.current_step()
                self._index = self._members.index(self._own_id)
                return True
            self._manager.should_commit()
        except (RuntimeError, TimeoutError, OSError) as error:
            _log.warning("no quorum yet: %s", _first_line(error))
            self._lighthouse.doubt()
            self._shut_down_manager()
        self._clock.sleep(_PATIENCE_SECONDS)
        return False

    def _heal(self, state: Any) -> None:
        self._load_state(state)
        self._healed = True

    def _new_manager(self) -> Any:
        settings = self._settings
        manager = Manager(
            pg=self._group,
            load_state_dict=self._heal,
            state_dict=self._state,
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
            checkpoint_transport=PeerTransport(settings.bind_address, settings.peer_token),
        )
        manager.load_state_dict({"step": self._step, "batches_committed": 0})
        self._own_id = self._store.get(torchft.manager.REPLICA_ID_KEY).decode()
        manager._client = _ObservedClient(manager, self._on_quorum)
        return manager

    def _on_quorum(self, members: tuple[str, ...]) -> bool:
        """Told of each quorum before torchft acts on it; whether the group must be rebuilt.

        A lighthouse that was restarted counts quorums from 1 again, so that two different ones
        may bear the same number. After it was away everybody rebuilds: the members may be those
        that we had, and yet one of them have been alone for a moment.
        """
        is_new = members != self._members or self._lighthouse.was_away
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
            _log.debug("shutting torchft's manager down: %s", _first_line(error))


class _ObservedClient:
    """torchft's client for its own server, with each quorum shown to us first."""

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


class _LighthouseWatch:
    """Knows at once when the lighthouse goes away: it holds an idle connection open.

    One that came back `is_there` again once it has been connected for `settling_seconds`;
    `was_away` stays until it is reset.
    """

    def __init__(self, address: str, settling_seconds: float, clock: Clock) -> None:
        parts = urlsplit(address)
        self._address = address
        self._endpoint = (parts.hostname or "", parts.port or 0)
        self._settling_seconds = settling_seconds
        self._clock = clock
        self._doubted_seconds = float("-inf")
        self._connected_seconds = float("-inf")
        self.was_away = False
        self._stopped = threading.Event()
        self._connection = self._connect()
        threading.Thread(target=self._watch, name="castor-lighthouse-watch", daemon=True).start()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def knows_the_job(self) -> bool:
        """It hears somebody's heartbeats, or nobody had any to send for long enough.

        How many it hears stands on torchft's status page only.
        """
        if self._clock.monotonic() - self._connected_seconds >= self._settling_seconds:
            return True
        try:
            with urllib.request.urlopen(f"{self._address}/status", timeout=1.0) as page:
                heard = _HEARD.search(page.read().decode())
        except OSError:
            return False
        return heard is not None and int(heard[1]) > 0

    @property
    def is_there(self) -> bool:
        since_seconds = self._clock.monotonic() - self._doubted_seconds
        return self.is_connected and since_seconds >= self._settling_seconds

    def doubt(self) -> None:
        """It may have been another one a moment ago."""
        self._doubted_seconds = self._clock.monotonic()
        self.was_away = True

    def stop(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.close()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.recv(1)
                self.doubt()
            self._connection = self._connect()
            if self._connection is None:
                self.doubt()
                self._stopped.wait(_PATIENCE_SECONDS)

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(self._endpoint, timeout=_CONNECT_SECONDS)
        except OSError:
            return None
        self._connected_seconds = self._clock.monotonic()
        connection.settimeout(None)
        _probe(connection)
        return connection


def _probe(connection: socket.socket) -> None:
    """Have the kernel ask over an idle connection whether the other host is still there.

    One that is lost closes nothing. Without an answer the connection breaks after five seconds,
    in place of two hours.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class _BoundHandle:
    """A torchft process group whose rendezvous store listens on one address only.

    Each handle names a part of the store of its own: a lighthouse that was restarted counts
    quorums from 1 again, and under the number of an earlier one lie addresses of long ago.
    """

    _bind_address: str
    _handles = 0

    def get_reconfigure_handle(self) -> str:
        group: Any = self
        if group._rendezvous_store is None:
            group._rendezvous_store, self._port = bound_store(self._bind_address)
        self._handles += 1
        return json.dumps(
            {
                "id": group._handle_id(),
                "store": f"{self._bind_address}:{self._port}/{self._handles}",
                "global_rank": group._global_rank,
            }
        )


class _BoundGloo(_BoundHandle, ProcessGroupGloo):  # type: ignore[misc]
    def __init__(self, bind_address: str, timeout: timedelta) -> None:
        super().__init__(timeout=timeout)
        self._bind_address = bind_address


class _BoundNCCL(_BoundHandle, ProcessGroupNCCL):  # type: ignore[misc]
    def __init__(self, bind_address: str, timeout: timedelta) -> None:
        super().__init__(timeout=timeout)
        self._bind_address = bind_address


def _group_of(device: torch.device, settings: QuorumSettings) -> Any:
    if device.type == "cpu":
        return _BoundGloo(settings.bind_address, timedelta(seconds=_GROUP_SECONDS))
    timeout = timedelta(seconds=settings.collective_timeout_seconds)
    return _BoundNCCL(settings.bind_address, timeout)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


def _open_ports_only_on(address: str) -> None:
    """Make gloo, NCCL and torchft's manager server listen on `address` alone."""
    use_interface_of(address)
    server = torchft.manager.ManagerServer
    if getattr(server, "is_bound", False):
        return

    def bound_server(bind: str, **arguments: Any) -> Any:
        return server(bind=f"{address}:{bind.rpartition(':')[2]}", **arguments)

    bound_server.is_bound = True  # type: ignore[attr-defined]
    torchft.manager.ManagerServer = bound_server
