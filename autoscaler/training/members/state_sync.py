"""State synchronisation of a new world's members, for either engine.

Each member publishes the version of its state in the world's store. Members without the furthest
state receive it from all that have it. These serve it and wait, as long as the lighthouse hears
the receivers and the receivers publish progress.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Final

from torch._C._distributed_c10d import Store

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.collectives.world import store_of
from autoscaler.training.members.instance_state import (
    InstanceState,
    LeaderState,
    Reception,
    Source,
)
from autoscaler.training.members.state_transfer import StateTransfer
from autoscaler.training.state.fingerprint import require_equal_shards
from autoscaler.training.state.training_state import TrainingState

_log = logging.getLogger(__name__)

_PARTIAL_STEP: Final = -1
_TICK_SECONDS: Final = 0.5
# Seconds without a tick of a receiver until it is given up, even if the lighthouse hears it.
_SILENCE_SECONDS: Final = 15.0
_MAX_ABSENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class StateVersion:
    """Version of a member's state, and the addresses at which the member serves it.

    Members with the same `origin` and `step` have the same state.

    Attributes:
        origin: name of the world in which the member trained up to that step, or of the member.
        step: committed steps; -1 for a state that was received in part.
        addresses: host and port of the member's state servers, by rank; see `Source`.
        nonce: random text, new with each synchronisation.
        is_member: whether the member has taken part in a training of this job.
        replica: name of the member.
        shards: number of ranks that hold one copy of the model; None for a plain model.
    """

    origin: str
    step: int
    addresses: tuple[str, ...]
    nonce: str
    is_member: bool = False
    replica: str = ""
    shards: int | None = None

    @property
    def key(self) -> str:
        """Name of the state version."""
        return f"{self.origin}/{self.step}"


def furthest(standings: Sequence[StateVersion]) -> str:
    """Return the key of the state from which all members continue.

    It is the state with the most steps. Ties go to the state of the most members, then to the
    first.
    """
    counts = Counter(standing.key for standing in standings)
    furthest_standing = max(standings, key=lambda standing: (standing.step, counts[standing.key]))
    return furthest_standing.key


class StateSync:
    """State synchronisation of this member with the other members of a world.

    `parts` is the state of this instance's ranks.
    """

    def __init__(
        self, bind_address: str, token: str, state: TrainingState, sums: Sums, clock: Clock
    ) -> None:
        self._state = state
        self._sums = sums
        self._clock = clock
        self._origin = uuid.uuid4().hex
        self._is_member = False
        self._stalls = 0
        transfer = StateTransfer(bind_address, token, state, clock)
        self.parts: InstanceState = LeaderState(transfer, clock)

    @property
    def patience_seconds(self) -> float:
        """Seconds to stay away after stalled transfers; doubles with each further stall."""
        if self._stalls < 2:
            return 0.0
        return min(2.0**self._stalls, _MAX_ABSENCE_SECONDS)

    def settle(self, may_begin: Callable[[], bool] = lambda: True) -> bool | None:
        """Obtain the state from which all members of the present world continue.

        Args:
            may_begin: called if all members are joiners: whether they may begin a training.

        Returns:
            Whether the state was received from others; None if the world has failed, which is then
            abandoned.

        Raises:
            CheckpointError: no member has a whole state.
            MismatchError: the state is that of another model.
        """
        received = self._synchronise(may_begin)
        if received is None:
            self._sums.abandon()
        return received

    def close(self) -> None:
        """Close the state server's port."""
        self.parts.close()

    def _synchronise(self, may_begin: Callable[[], bool]) -> bool | None:
        meeting = self._sums.meeting
        assert meeting is not None
        self.parts.expect()
        own_standing = self._own_standing()
        standings = self._all_standings(own_standing, meeting.index, meeting.members)
        if standings is None:
            return None
        if not any(standing.is_member for standing in standings) and not may_begin():
            return None
        key = furthest(standings)
        sources = [standing for standing in standings if standing.key == key]
        if sources[0].step == _PARTIAL_STEP:
            raise CheckpointError(
                "the transfer of the state was cut off, and no member has all of it: start again "
                "from the newest checkpoint"
            )
        receivers = [index for index, standing in enumerate(standings) if standing.key != key]
        if own_standing.key == key:
            self.parts.transfer.fetch = None
            is_settled = self._serve_state(key, receivers)
        else:
            is_settled = self._receive_state(
                key, sources, meeting.index
            ) and self._wait_for_receivers(receivers)
        if not is_settled:
            return None
        self._origin = _world_name(standings)
        self._is_member = True
        return own_standing.key != key

    def _own_standing(self) -> StateVersion:
        step = _PARTIAL_STEP if self.parts.is_torn else self._state.counters.step
        return StateVersion(
            self._origin,
            step,
            self.parts.source.addresses,
            nonce=uuid.uuid4().hex,
            is_member=self._is_member,
            replica=self._state.replica,
            shards=self._state.shards,
        )

    def _all_standings(
        self, own: StateVersion, index: int, members: int
    ) -> list[StateVersion] | None:
        """Return the standings of all members, by index; None if a member publishes none."""
        if members == 1:
            return [own]
        keys = [f"standing/{member}" for member in range(members)]
        lines: list[bytes] = []

        def are_published(store: Store) -> bool:
            if not store.check([keys[index]]):
                store.set(keys[index], json.dumps(asdict(own)))
            if not store.check(keys):
                return False
            lines.extend(store.get(key) for key in keys)
            return True

        if not self._sums.wait_until(are_published, "members to publish their state versions"):
            return None
        return [_version_from(line) for line in lines]

    def _serve_state(self, key: str, behind: Sequence[int]) -> bool:
        """Serve this member's state until all `behind` members have it; return whether they do."""
        if not behind:
            return True
        self.parts.serve(key)
        try:
            return self._wait_for_receivers(behind)
        finally:
            self.parts.stop()

    def _wait_for_receivers(self, behind: Sequence[int]) -> bool:
        """Wait until these members have the state, while each of them publishes ticks."""
        keys = [_has_state_key(member) for member in behind]
        progress = _ReceiverProgress(self._clock)

        def have_state(store: Store) -> bool:
            for member in behind:
                progress.require(store, member)
            return bool(store.check(keys))

        return self._sums.wait_until(have_state, "members that receive the state")

    def _receive_state(self, key: str, sources: Sequence[StateVersion], index: int) -> bool:
        """Receive and load the sources' state; return whether that succeeded.

        Raises:
            MismatchError: the state is that of another model, or has other parts.
        """
        source = sources[0]
        require_equal_shards(self._state.shards, source.shards, f"replica {source.replica}")

        def wait_in_world(is_so: Callable[[], bool]) -> bool:
            return self._sums.wait_until(lambda store: is_so(), "the state")

        with self._ticking(index):
            # If the sources are lost, a member that has trained may be the only one with its
            # state: others may need the content of its tensors.
            addresses = [Source(source.addresses) for source in sources]
            in_place = not self._is_member
            reception = self.parts.receive(key, addresses, in_place, wait_in_world)
            self._stalls += reception is Reception.STALLED
            if reception is not Reception.COMPLETE:
                return False
            self._origin, self._stalls = sources[0].origin, 0
            return self._sums.wait_until(
                lambda store: _set_flag(store, _has_state_key(index)), "the store"
            )

    @contextmanager
    def _ticking(self, index: int) -> Iterator[None]:
        """Publish a tick in the world's store twice a second within the context."""
        meeting, has_ended = self._sums.meeting, threading.Event()
        assert meeting is not None

        def tick() -> None:
            with suppress(RuntimeError):
                store = store_of(meeting)
                for number in itertools.count():
                    store.set(_tick_key(index), str(number))
                    if has_ended.wait(_TICK_SECONDS):
                        return

        threading.Thread(target=tick, name="castor-ticks", daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()


class _ReceiverProgress:
    """Last tick of each receiver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ticks: dict[int, tuple[bytes, float]] = {}

    def require(self, store: Store, receiver: int) -> None:
        """Check that the receiver with this index has the state, or still publishes ticks.

        Raises:
            RuntimeError: it has published no tick for `_SILENCE_SECONDS`.
        """
        now_seconds = self._clock.monotonic()
        value = store.get(_tick_key(receiver)) if store.check([_tick_key(receiver)]) else b""
        last_value, since_seconds = self._last_ticks.setdefault(receiver, (value, now_seconds))
        if value != last_value or store.check([_has_state_key(receiver)]):
            self._last_ticks[receiver] = value, now_seconds
        elif now_seconds - since_seconds > _SILENCE_SECONDS:
            raise RuntimeError(
                f"member {receiver}, which receives the state, has sent no sign of life for "
                f"{_SILENCE_SECONDS:g} s"
            )


def _version_from(line: bytes) -> StateVersion:
    values = json.loads(line)
    return StateVersion(**{**values, "addresses": tuple(values["addresses"])})


def _has_state_key(member: int) -> str:
    return f"has-state/{member}"


def _tick_key(member: int) -> str:
    return f"ticks/{member}"


def _set_flag(store: Store, key: str) -> bool:
    store.set(key, "1")
    return True


def _world_name(standings: Sequence[StateVersion]) -> str:
    """Return a name that is unique to this world and equal on all its members."""
    return hashlib.sha256("".join(standing.nonce for standing in standings).encode()).hexdigest()
