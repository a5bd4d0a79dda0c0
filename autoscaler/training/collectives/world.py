"""Instances of one membership, and the sums over them.

Numbers that determine decisions are CPU tensors summed by gloo, which raises an error when a peer
is lost. Gradients are summed by a separate group, which may fail without raising; whether they are
whole is known at the end of the step. After its first failure a world is unusable. Its members
notify each other through the world's store, and form another world.
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

_WAIT_SLICE: Final = timedelta(seconds=0.1)
# Most numbers that members exchange in place of a ring sum: half a megabyte.
_FEW_NUMBERS: Final = 65_536
_POLL_SECONDS: Final = 0.02
# Seconds of a sum after which lost peers are looked for.
_LOSS_CHECK_SECONDS: Final = 0.5
# torch looks up a name for each connection: the timeout allows two unanswered queries of 5 s.
_STORE_TIMEOUT: Final = timedelta(seconds=11)
# Interval at which the log reports the wait for a member that evaluates.
_WAIT_LOG_SECONDS: Final = 600.0
_ENDLESS: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Meeting point of one world's members: a store, a prefix in it, and this member's index.

    Worlds of different `rail`s at one meeting point are separate, but end together.
    """

    store: str
    prefix: str
    index: int
    members: int
    rail: int = 0


class PendingSum:
    """Sum of gradients over the instances that may still be in progress."""

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self._wait = wait

    def wait(self) -> None:
        """Make later work on this device use the sum. Never raises.

        With NCCL the host continues at once, and the current stream waits. With gloo the host
        waits. May be called on any thread, once.
        """
        if self._wait is not None:
            self._wait()


class _PendingWorks:
    """Works that the device executes in order, and the time since the first became first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._works: deque[Any] = deque()
        self._since_seconds = 0.0

    def add(self, work: Any) -> None:
        if not self._works:
            self._since_seconds = self._clock.monotonic()
        self._works.append(work)

    def waited_seconds(self) -> float:
        """Return the seconds without a completed work while works are pending; else 0."""
        while self._works and self._works[0].is_completed():
            self._works.popleft()
            self._since_seconds = self._clock.monotonic()
        return self._clock.monotonic() - self._since_seconds if self._works else 0.0


class World:
    """Members of one `meeting`, as process groups.

    `has_lost_member` is called if a sum takes long: whether the lighthouse misses a member.

    Raises:
        RuntimeError: a member does not join within the `forming` timeout.
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
        self._lock = threading.Lock()
        self._begun_works: list[Any] = []
        self._is_given_up = False
        self._gatherings = 0
        self.error: Exception | None = None
        self._meeting = meeting
        self._store = store_of(meeting)
        index_and_size = meeting.index, meeting.members
        group_store = PrefixStore(f"control/{meeting.rail}", self._store)
        self._control: Any = ProcessGroupGloo(group_store, *index_and_size, forming)
        group_store = PrefixStore(f"gradients/{meeting.rail}", self._store)
        self._gradients: GradientGroup | None = form_gradients(
            group_store, *index_and_size, self._control
        )
        self._pending = _PendingWorks(clock)
        self._end_listener: threading.Thread | None = None
        # A wait blocks its connection to the store, so waiting threads have their own.
        self._listener_store = store_of(meeting)
        self._polling_store: Store | None = None

    @property
    def is_watched(self) -> bool:
        """Whether sums may be pending without a waiting thread, so that `look` must be called."""
        return self._gradients is not None and not self._gradients.blocks_host

    def gather(self) -> None:
        """Wait until all members have called this as often as this one; set `error` on failure.

        A member may take any time while the lighthouse hears it.
        """
        self._gatherings += 1
        keys = [f"here/{self._gatherings}/{index}" for index in range(self._meeting.members)]
        own_key = [keys[self._meeting.index]]

        def have_arrived(store: Store) -> bool:
            if own_key:
                store.set(own_key.pop(), "1")
            return bool(store.check(keys))

        self.wait_until(have_arrived, "a member's evaluation")

    def wait_until(self, is_so: Callable[[Store], bool], description: str) -> None:
        """Wait until `is_so` returns True for the world's store; on a failure set `error`.

        `is_so` is called repeatedly on a separate thread, as a store on a frozen host never
        answers. An error that it raises is a failure, and so is a member that the lighthouse
        misses. `description` describes the condition in the log.
        """
        if self.error is not None:
            return
        began_seconds = self._clock.monotonic()
        is_done = threading.Event()
        threading.Thread(target=self._poll_until, args=(is_so, is_done), daemon=True).start()
        try:
            log_seconds = _WAIT_LOG_SECONDS
            while not is_done.wait(_POLL_SECONDS) and self.error is None:
                waited_seconds = self._clock.monotonic() - began_seconds
                self._require_answers(waited_seconds, _ENDLESS)
                if waited_seconds >= log_seconds:
                    log_seconds += _WAIT_LOG_SECONDS
                    _log.warning("%.0f s of waiting for %s", waited_seconds, description)
        except RuntimeError as error:
            self.fail(error)

    def sum_numbers(self, tensor: torch.Tensor) -> None:
        """Sum a CPU tensor over the members, in place. Blocks; on a failure set `error`.

        Few numbers are sent directly from each member to each. Gloo's own sum sends them around a
        ring several times.
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
        """Start the sum of `tensor` over the members, in place; `verdict` reports a failure."""
        group = self._gradients
        if self.error is not None or group is None:
            return PendingSum()
        try:
            work = group.all_reduce(tensor)
        except Exception as error:
            self.fail(error)
            return PendingSum()
        if group.blocks_host:
            self._keep_work(work)
        else:
            with self._lock:
                self._pending.add(work)
        return PendingSum(lambda: self._wait_for_gradients(work, group.blocks_host))

    def verdict(self) -> Exception | None:
        """Return the failure of any sum, after all of them have ended; None without a failure."""
        group = self._gradients
        if self.error is None and group is not None:
            group.finish()
            error = group.error()
            if error is not None and self.error is None:
                self.fail(error)
        return self.error

    def look(self) -> None:
        """Mark the world as failed if a pending sum takes too long or a member is lost."""
        if self.error is not None:
            return
        with self._lock:
            waited_seconds = self._pending.waited_seconds()
        try:
            self._require_answers(waited_seconds)
        except RuntimeError as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Mark the world as failed: its sums are invalid, and the other members are notified."""
        with self._lock:
            if self.error is not None:
                return
            # The error itself would reference frames that keep the group's connections open.
            self.error = RuntimeError(first_line(error))
        _log.warning("a peer does not answer: %s", self.error)
        if self._gradients is not None:
            self._run_logging_errors(self._gradients.abort)
        self._run_logging_errors(self._notify_members)

    def abandon(self) -> None:
        """Close the world's connections, so that a waiting peer notices before its timeout.

        Gloo closes them when the group is released. A group that still waits for a peer is parked,
        as its destructor would block this process for as long.
        """
        if self.error is None:
            self.error = RuntimeError("the membership has ended")
            self._run_logging_errors(self._notify_members)
            if self._gradients is not None:
                self._run_logging_errors(self._gradients.abort)
        group, self._gradients, self._control = self._control, None, None
        works, self._begun_works = self._begun_works, []
        parking.leave(group, works)

    def _wait_for_numbers(self, work: Any) -> None:
        self._keep_work(work)
        self._wait_on_host(work)

    def _keep_work(self, work: Any) -> None:
        self._begun_works = [
            pending_work for pending_work in self._begun_works if not pending_work.is_completed()
        ]
        self._begun_works.append(work)

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
        """Wait for `work` in short slices, as a wait of gloo can't be interrupted.

        Raises:
            RuntimeError: a member does not answer, or is lost.
        """
        began_seconds = self._clock.monotonic()
        while True:
            try:
                work.wait(_WAIT_SLICE)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait(_WAIT_SLICE)  # raises the work's error, unless it has just ended
                    return
            if self.error is not None:
                raise RuntimeError("this world was given up")
            self._require_answers(self._clock.monotonic() - began_seconds)

    def _require_answers(self, waited_seconds: float, limit: timedelta | None = None) -> None:
        limit_seconds = (limit or self._timeout).total_seconds()
        if waited_seconds > limit_seconds:
            raise RuntimeError(f"no answer within {limit_seconds:g} s")
        if waited_seconds <= _LOSS_CHECK_SECONDS:
            return
        if self._end_listener is None:
            self._end_listener = threading.Thread(target=self._await_end, daemon=True)
            self._end_listener.start()
        if self._has_lost_member():
            raise RuntimeError("the lighthouse misses a member")
        if self._is_given_up:
            raise RuntimeError("another member has given this world up, or is gone")

    def _poll_until(self, is_so: Callable[[Store], bool], is_done: threading.Event) -> None:
        try:
            if self._polling_store is None:
                self._polling_store = store_of(self._meeting)
            while self.error is None and not is_so(self._polling_store):
                self._clock.sleep(_POLL_SECONDS)
            is_done.set()
        except Exception as error:
            self.fail(error)

    def _notify_members(self) -> None:
        """Publish the world's end for all members, before the store may end with its host.

        If the store's host is lost, this raises an error first, as torch would log a page. The
        other members then notice the loss themselves.
        """
        reach(self._meeting.store)
        for index in range(self._meeting.members):
            self._store.set(_end_key(index), "1")

    def _await_end(self) -> None:
        """Wait until a member has given this world up or the store's host is lost."""
        with suppress(RuntimeError):
            self._listener_store.wait([_end_key(self._meeting.index)], _ENDLESS)
        self._is_given_up = True

    def _run_logging_errors(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:
            _log.debug("giving a world up: %s", first_line(error))


class _ParkedGroups:
    """Gloo groups that still wait for a peer, kept until their sums reach their timeouts."""

    def __init__(self) -> None:
        self._groups: list[tuple[Any, list[Any]]] = []

    def leave(self, group: Any, works: list[Any]) -> None:
        """Keep `group` while one of `works` needs it; release groups whose works are done."""
        self._groups = [parked for parked in self._groups if _are_pending(parked[1])]
        if _are_pending(works):
            self._groups.append((group, works))

    def clear(self) -> None:
        """Wait until no group is left; one that exists at interpreter exit aborts the process."""
        groups, self._groups = self._groups, []
        for _, works in groups:
            for work in works:
                with suppress(RuntimeError):
                    work.wait()


parking = _ParkedGroups()


def _are_pending(works: list[Any]) -> bool:
    return not all(work.is_completed() for work in works)


def store_of(meeting: Meeting) -> Store:
    """Return a new connection to the store of a world.

    Raises:
        RuntimeError: the store's host does not answer.
    """
    host, _, port = meeting.store.rpartition(":")
    client = TCPStore(host, int(port), wait_for_workers=False, timeout=_STORE_TIMEOUT)
    return PrefixStore(meeting.prefix, client)


def _end_key(index: int) -> str:
    return f"end/{index}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or else its type's name."""
    return str(error).partition("\n")[0][:200] or type(error).__name__
