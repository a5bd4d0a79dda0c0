"""The instances of one membership, and the sums over them.

Numbers that decide something travel as CPU tensors over gloo, which raises an error when a peer
is lost. Gradients travel by a group of their own kind, which may fail without raising: whether
they are whole is known at the end of the step. After the first failure a world is of no more use;
its members tell each other through the store at which they met, and meet in another one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

from autoscaler.clock import Clock
from autoscaler.training.collectives.gradient_groups import (
    FormGradients,
    GradientGroup,
    begin_exchange,
    begin_sum,
)
from autoscaler.training.collectives.ports import reach

_log = logging.getLogger(__name__)

_SLICE: Final = timedelta(seconds=0.1)
# What the members send each other in place of a sum, at most: half a megabyte.
_FEW_NUMBERS: Final = 65_536
_LOOK_SECONDS: Final = 0.02
# A sum that takes longer than this makes us ask whether a peer is lost.
_PATIENCE_SECONDS: Final = 0.5
# torch looks up a name for each connection: two queries of 5 s each that nobody answers fit in.
_STORE_TIMEOUT: Final = timedelta(seconds=11)
# A member that evaluates is awaited while it is alive; the log says how long, at such intervals.
_WAIT_LOG_SECONDS: Final = 600.0
_ENDLESS: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the members of one world meet: a store, their own part of it, and our place.

    Worlds that meet there with different `rail`s are apart, but for their end: it is that of all.
    """

    store: str
    prefix: str
    index: int
    members: int
    rail: int = 0


class PendingSum:
    """A sum of gradients over the instances that may still be under way."""

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self._wait = wait

    def wait(self) -> None:
        """Let what follows on this device see the sum. Never raises.

        Over NCCL the host goes on at once, and the current stream waits. Over gloo the host
        waits. May be called on any thread, once.
        """
        if self._wait is not None:
            self._wait()


class _UnderWay:
    """Works that the device does in order, and since when the first of them is the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._works: deque[Any] = deque()
        self._since_seconds = 0.0

    def add(self, work: Any) -> None:
        if not self._works:
            self._since_seconds = self._clock.monotonic()
        self._works.append(work)

    def waited_seconds(self) -> float:
        """How long nothing has come to its end, though something is under way."""
        while self._works and self._works[0].is_completed():
            self._works.popleft()
            self._since_seconds = self._clock.monotonic()
        return self._clock.monotonic() - self._since_seconds if self._works else 0.0


class World:
    """The members of one `meeting`, as process groups.

    `has_lost_member` is asked once a sum lasts long: whether the lighthouse misses a member.

    Raises:
        RuntimeError: at its forming, if a member does not come.
    """

    def __init__(
        self,
        meeting: Meeting,
        form_gradients: FormGradients,
        has_lost_member: Callable[[], bool],
        forming: timedelta,
        timeout: timedelta,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._has_lost_member = has_lost_member
        self._failing = threading.Lock()
        self._begun: list[Any] = []
        self._is_given_up = False
        self._gatherings = 0
        self.error: Exception | None = None
        self._meeting = meeting
        self._store = store_of(meeting)
        place = meeting.index, meeting.members
        own = PrefixStore(f"control/{meeting.rail}", self._store)
        self._control: Any = ProcessGroupGloo(own, *place, forming)
        own = PrefixStore(f"gradients/{meeting.rail}", self._store)
        self._gradients: GradientGroup | None = form_gradients(own, *place, self._control)
        self._under_way = _UnderWay(clock)
        self._listening: threading.Thread | None = None
        # A wait holds up all else that goes over its connection to the store.
        self._store_to_listen_at = store_of(meeting)
        self._store_to_look_at: Store | None = None

    @property
    def is_watched(self) -> bool:
        """Sums may be under way that no thread waits for: `look` must be called now and then."""
        return self._gradients is not None and not self._gradients.blocks_host

    def gather(self) -> None:
        """Wait until all members have called this as often as we have; on a failure see `error`.

        A member may take as long as it needs while the lighthouse hears it.
        """
        self._gatherings += 1
        signs = [f"here/{self._gatherings}/{index}" for index in range(self._meeting.members)]
        own = [signs[self._meeting.index]]

        def are_here(store: Store) -> bool:
            if own:
                store.set(own.pop(), "1")
            return bool(store.check(signs))

        self.wait_until(are_here, "a member's evaluation")

    def wait_until(self, is_so: Callable[[Store], bool], what: str) -> None:
        """Wait until `is_so` of the store at which we met; on a failure see `error`.

        `what` names that in the log. `is_so` is called again and again, on a thread of its own: a
        host that is frozen answers never. What it raises is a failure. So is a member that the
        lighthouse misses.
        """
        if self.error is not None:
            return
        began_seconds = self._clock.monotonic()
        is_done = threading.Event()
        threading.Thread(target=self._look_until, args=(is_so, is_done), daemon=True).start()
        try:
            log_seconds = _WAIT_LOG_SECONDS
            while not is_done.wait(_LOOK_SECONDS) and self.error is None:
                waited_seconds = self._clock.monotonic() - began_seconds
                self._require_answers(waited_seconds, _ENDLESS)
                if waited_seconds >= log_seconds:
                    log_seconds += _WAIT_LOG_SECONDS
                    _log.warning("%.0f s of waiting for %s", waited_seconds, what)
        except RuntimeError as error:
            self.fail(error)

    def sum_numbers(self, tensor: torch.Tensor) -> None:
        """Sum a CPU tensor over the members, in place. Blocks; on a failure see `error`.

        Few numbers go from each member to each at once; gloo's own sum sends them around a ring
        several times.
        """
        if self.error is not None:
            return
        members = self._meeting.members
        try:
            if tensor.numel() * members > _FEW_NUMBERS:
                self._wait_for_numbers(begin_sum(self._control, tensor, self._timeout))
                return
            received = tensor.new_empty((members, *tensor.shape))
            self._wait_for_numbers(begin_exchange(self._control, tensor, received, self._timeout))
            torch.sum(received, dim=0, out=tensor)
        except Exception as error:
            self.fail(error)

    def sum_gradients(self, tensor: torch.Tensor) -> PendingSum:
        """Begin to sum `tensor` over the members, in place; on a failure see `verdict`."""
        group = self._gradients
        if self.error is not None or group is None:
            return PendingSum()
        try:
            work = group.all_reduce(tensor)
        except Exception as error:
            self.fail(error)
            return PendingSum()
        if group.blocks_host:
            self._keep(work)
        else:
            with self._failing:
                self._under_way.add(work)
        return PendingSum(lambda: self._wait_for_gradients(work, group.blocks_host))

    def verdict(self) -> Exception | None:
        """What has failed, once all that was begun is done."""
        group = self._gradients
        if self.error is None and group is not None:
            group.finish()
            error = group.error()
            if error is not None and self.error is None:
                self.fail(error)
        return self.error

    def look(self) -> None:
        """Fail if a sum that is under way has a lost member, or lasts too long."""
        if self.error is not None:
            return
        with self._failing:
            waited_seconds = self._under_way.waited_seconds()
        try:
            self._require_answers(waited_seconds)
        except RuntimeError as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Give this world up: no sum of it holds any more, and the other members learn of it."""
        with self._failing:
            if self.error is not None:
                return
            # The error itself would hold the frames that hold the group's connections open.
            self.error = RuntimeError(first_line(error))
        _log.warning("a peer does not answer: %s", self.error)
        if self._gradients is not None:
            self._quietly(self._gradients.abort)
        self._quietly(self._tell_members)

    def abandon(self) -> None:
        """Close its connections, so that a peer that waits for us need not wait for its timeout.

        Gloo closes them when nobody holds the group any more. A group that still waits for a peer
        is kept: its end would hold this process up for as long.
        """
        if self.error is None:
            self.error = RuntimeError("the membership has ended")
            self._quietly(self._tell_members)
            if self._gradients is not None:
                self._quietly(self._gradients.abort)
        group, self._gradients, self._control = self._control, None, None
        works, self._begun = self._begun, []
        parking.leave(group, works)

    def _wait_for_numbers(self, work: Any) -> None:
        self._keep(work)
        self._wait_on_host(work)

    def _keep(self, work: Any) -> None:
        self._begun = [begun for begun in self._begun if not begun.is_completed()]
        self._begun.append(work)

    def _wait_for_gradients(self, work: Any, blocks_host: bool) -> None:
        if self.error is not None:
            return
        try:
            if blocks_host:
                self._wait_on_host(work)
            else:
                work.wait()
        except Exception as error:
            self.fail(error)

    def _wait_on_host(self, work: Any) -> None:
        """Wait for `work`; gloo can't be told to stop waiting, so that we wait in slices.

        Raises:
            RuntimeError: a member does not answer, or is lost.
        """
        began_seconds = self._clock.monotonic()
        while True:
            try:
                work.wait(_SLICE)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait(_SLICE)  # raises what is wrong, if it has not just come to its end
                    return
            if self.error is not None:
                raise RuntimeError("this world was given up")
            self._require_answers(self._clock.monotonic() - began_seconds)

    def _require_answers(self, waited_seconds: float, limit: timedelta | None = None) -> None:
        limit_seconds = (limit or self._timeout).total_seconds()
        if waited_seconds > limit_seconds:
            raise RuntimeError(f"no answer within {limit_seconds:g} s")
        if waited_seconds <= _PATIENCE_SECONDS:
            return
        if self._listening is None:
            self._listening = threading.Thread(target=self._listen, daemon=True)
            self._listening.start()
        if self._has_lost_member():
            raise RuntimeError("the lighthouse misses a member")
        if self._is_given_up:
            raise RuntimeError("another member has given this world up, or is gone")

    def _look_until(self, is_so: Callable[[Store], bool], is_done: threading.Event) -> None:
        try:
            if self._store_to_look_at is None:
                self._store_to_look_at = store_of(self._meeting)
            while self.error is None and not is_so(self._store_to_look_at):
                self._clock.sleep(_LOOK_SECONDS)
            is_done.set()
        except Exception as error:
            self.fail(error)

    def _tell_members(self) -> None:
        """Tell all members that this world has ended, before the store may go with its host.

        If the host is the one that is lost, torch would log a page about it: they notice as we do.
        """
        reach(self._meeting.store)
        for index in range(self._meeting.members):
            self._store.set(_end_of(index), "1")

    def _listen(self) -> None:
        """Note that a member has given this world up, or that the store's host is gone.

        On a thread of its own: a host that is frozen answers never.
        """
        with suppress(RuntimeError):
            self._store_to_listen_at.wait([_end_of(self._meeting.index)], _ENDLESS)
        self._is_given_up = True

    def _quietly(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:
            _log.debug("giving a world up: %s", first_line(error))


class _Parking:
    """Gloo groups that still wait for a peer, each until its sums have reached their timeouts."""

    def __init__(self) -> None:
        self._groups: list[tuple[Any, list[Any]]] = []

    def leave(self, group: Any, works: list[Any]) -> None:
        """Hold `group` for as long as one of `works` needs it; let go of those that are done."""
        self._groups = [parked for parked in self._groups if _are_pending(parked[1])]
        if _are_pending(works):
            self._groups.append((group, works))

    def clear(self) -> None:
        """Wait until no group is left. One that is held at the interpreter's end aborts it."""
        groups, self._groups = self._groups, []
        for _, works in groups:
            for work in works:
                with suppress(RuntimeError):
                    work.wait()


parking = _Parking()


def _are_pending(works: list[Any]) -> bool:
    return not all(work.is_completed() for work in works)


def store_of(meeting: Meeting) -> Store:
    """Return a connection of its own to the store of a world.

    Raises:
        RuntimeError: the store's host does not answer.
    """
    host, _, port = meeting.store.rpartition(":")
    client = TCPStore(host, int(port), wait_for_workers=False, timeout=_STORE_TIMEOUT)
    return PrefixStore(meeting.prefix, client)


def _end_of(index: int) -> str:
    return f"end/{index}"


def first_line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return str(error).partition("\n")[0][:200] or type(error).__name__
