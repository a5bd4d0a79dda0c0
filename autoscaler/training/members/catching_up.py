"""How the members of a new world come to have one state, whatever the engine.

Each member says at the store of the world what state it has. Those that have not the furthest one
receive it from all that have it. The others serve it and wait, for as long as the lighthouse hears
the receivers and they say that they make progress.
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
from autoscaler.domain.errors import CheckpointError, MismatchError
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.collectives.world import store_of
from autoscaler.training.members.fetching import Fetch, StalledError
from autoscaler.training.members.transport import StateServer
from autoscaler.training.state.reception import Description, Reception
from autoscaler.training.state.training_state import TrainingState

_log = logging.getLogger(__name__)

_TORN: Final = -1
_TICK_SECONDS: Final = 0.5
# A receiver whose process says nothing for so long is given up, though it may be heard.
_SILENCE_SECONDS: Final = 15.0
_LONGEST_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The state that a member has, and the address at which it serves that.

    Members with the same `origin` and `step` have the same state: the origin is the world in which
    they have trained up to that step, or themselves. The step of a state that was received in part
    is -1. `nonce` differs at each standing. `is_member`: it has been in a training of this job.
    """

    origin: str
    step: int
    address: str
    nonce: str
    is_member: bool = False

    @property
    def key(self) -> str:
        """The name of the state."""
        return f"{self.origin}/{self.step}"


def furthest(standings: Sequence[Standing]) -> str:
    """Return the key of the state that all go on from.

    It is that of the most steps, and among equals that of the most members, or the first.
    """
    counts = Counter(standing.key for standing in standings)
    best = max(standings, key=lambda standing: (standing.step, counts[standing.key]))
    return best.key


class CatchingUp:
    """This member's part in making the states of a world's members equal.

    `give_to_instance` gives a state that was received to the other ranks of this instance.
    `patience_seconds` is how long to stay away after a transfer that stalled here.
    """

    def __init__(
        self, bind_address: str, token: str, state: TrainingState, sums: Sums, clock: Clock
    ) -> None:
        self._server = StateServer(bind_address, token)
        self._token = token
        self._state = state
        self._sums = sums
        self._clock = clock
        self._origin = uuid.uuid4().hex
        self._is_member = False
        self._is_torn = False
        self._fetch: Fetch | None = None
        self._stalls = 0
        self.give_to_instance: Callable[[], None] = lambda: None

    @property
    def patience_seconds(self) -> float:
        """How long this member stays away: longer with each transfer in a row that stalled."""
        if self._stalls < 2:
            return 0.0
        return min(2.0**self._stalls, _LONGEST_PATIENCE_SECONDS)

    def settle(self, may_begin: Callable[[], bool] = lambda: True) -> bool | None:
        """Have the state that all members of the present world go on from.

        Args:
            may_begin: asked where all of them are joiners: whether these may begin a training.

        Returns:
            Whether it was received from others; None where the world has failed, which we have
            left then.

        Raises:
            CheckpointError: no member has a whole state.
            MismatchError: the state is that of another model.
        """
        received = self._settle(may_begin)
        if received is None:
            self._sums.abandon()
        return received

    def close(self) -> None:
        """Close the port."""
        self._server.close()

    def _settle(self, may_begin: Callable[[], bool]) -> bool | None:
        meeting = self._sums.meeting
        assert meeting is not None
        step = _TORN if self._is_torn else self._state.counters.step
        nonce, address = uuid.uuid4().hex, self._server.address
        own = Standing(self._origin, step, address, nonce, self._is_member)
        self._server.expect()
        standings = self._all_standings(own, meeting.index, meeting.members)
        if standings is None:
            return None
        if not any(standing.is_member for standing in standings) and not may_begin():
            return None
        key = furthest(standings)
        sources = [standing for standing in standings if standing.key == key]
        if sources[0].step == _TORN:
            raise CheckpointError(
                "the transfer of the state was cut off, and no member has all of it: start again "
                "from the newest checkpoint"
            )
        behind = [place for place, standing in enumerate(standings) if standing.key != key]
        if own.key == key:
            self._fetch = None
            is_settled = self._serve(key, behind)
        else:
            is_settled = self._receive(key, sources, meeting.index) and self._await(behind)
        if not is_settled:
            return None
        self._origin = _name_of_world(standings)
        self._is_member = True
        return own.key != key

    def _all_standings(self, own: Standing, index: int, members: int) -> list[Standing] | None:
        """The standings of all members, by their index; None where one does not say."""
        if members == 1:
            return [own]
        keys = [f"standing/{place}" for place in range(members)]
        lines: list[bytes] = []

        def are_told(store: Store) -> bool:
            if not store.check([keys[index]]):
                store.set(keys[index], json.dumps(asdict(own)))
            if not store.check(keys):
                return False
            lines.extend(store.get(key) for key in keys)
            return True

        if not self._sums.wait_until(are_told, "members to say what state they have"):
            return None
        return [Standing(**json.loads(line)) for line in lines]

    def _serve(self, key: str, behind: Sequence[int]) -> bool:
        """Serve our state until all who are behind have it; whether they do."""
        if not behind:
            return True
        self._server.serve(key, self._state.state_dict())
        try:
            return self._await(behind)
        finally:
            self._server.stop()

    def _await(self, behind: Sequence[int]) -> bool:
        """Wait until these members have the state, while each says that it is at work."""
        has_it = [_has_state(place) for place in behind]
        progress = _Progress(self._clock)

        def have_it(store: Store) -> bool:
            for place in behind:
                progress.require(store, place)
            return bool(store.check(has_it))

        return self._sums.wait_until(have_it, "members that receive the state")

    def _receive(self, key: str, sources: Sequence[Standing], index: int) -> bool:
        """Become what the sources are; whether that was done."""
        fetch = self._fetch_of(key)
        with self._ticking(index):
            if not self._fetch_while_world_lasts(fetch, [source.address for source in sources]):
                return False
            self._fetch = None
            self._state.load_state_dict(fetch.complete())
            self._origin, self._is_torn, self._stalls = sources[0].origin, False, 0
            self.give_to_instance()
            return self._sums.wait_until(lambda store: _say(store, _has_state(index)), "the store")

    def _fetch_of(self, key: str) -> Fetch:
        """The transfer of that state: the last one, where it was cut off."""
        if self._fetch is None or self._fetch.key != key:
            self._fetch = None  # its memory is free before that of the next one is taken
            self._fetch = Fetch(key, self._token, self._memory_for, self._clock)
        return self._fetch

    def _memory_for(self, description: Description) -> Reception:
        """Return memory for a state: our own, unless others may need what is in it.

        Who has trained may be the only one to have its state, if the sources are lost meanwhile.
        """
        self._is_torn = not self._is_member
        return self._state.reception(description, in_place=not self._is_member)

    def _fetch_while_world_lasts(self, fetch: Fetch, addresses: Sequence[str]) -> bool:
        began_seconds = self._clock.monotonic()
        run = _Run(fetch, addresses)
        holds = self._sums.wait_until(lambda store: run.has_ended, "the state")
        run.end()
        if isinstance(run.error, MismatchError):
            raise run.error
        if isinstance(run.error, StalledError):
            self._stalls += 1
            _log.warning("the state can't be received: %s", run.error)
        elif run.error is None and holds:
            seconds = self._clock.monotonic() - began_seconds
            _log.info("received %s bytes in %.1f s", f"{fetch.size_bytes:,}", seconds)
        return run.error is None and holds

    @contextmanager
    def _ticking(self, index: int) -> Iterator[None]:
        """Say at the store that this process is at work, from a thread, twice a second."""
        meeting, ended = self._sums.meeting, threading.Event()
        assert meeting is not None

        def tick() -> None:
            with suppress(RuntimeError):
                store = store_of(meeting)
                for number in itertools.count():
                    store.set(_ticks(index), str(number))
                    if ended.wait(_TICK_SECONDS):
                        return

        threading.Thread(target=tick, name="castor-ticks", daemon=True).start()
        try:
            yield
        finally:
            ended.set()


class _Run:
    """One run of a transfer, on a thread of its own."""

    def __init__(self, fetch: Fetch, addresses: Sequence[str]) -> None:
        self._fetch = fetch
        self._addresses = addresses
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="castor-fetch", daemon=True)
        self.error: Exception | None = None
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        """Return when nothing is received any more."""
        self._cancelled.set()
        self._fetch.break_connections()
        self._thread.join()

    def _receive(self) -> None:
        try:
            self._fetch.run(self._addresses, self._cancelled)
        except Exception as error:
            self.error = error


class _Progress:
    """When receivers last said that they are at work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[int, tuple[bytes, float]] = {}

    def require(self, store: Store, place: int) -> None:
        """Check that the receiver with this index has the state, or is at work on it.

        Raises:
            RuntimeError: it has said nothing for long.
        """
        now_seconds = self._clock.monotonic()
        value = store.get(_ticks(place)) if store.check([_ticks(place)]) else b""
        last, since_seconds = self._heard.setdefault(place, (value, now_seconds))
        if value != last or store.check([_has_state(place)]):
            self._heard[place] = value, now_seconds
        elif now_seconds - since_seconds > _SILENCE_SECONDS:
            raise RuntimeError(
                f"member {place}, which receives the state, has said nothing for "
                f"{_SILENCE_SECONDS:g} s"
            )


def _has_state(place: int) -> str:
    return f"has-state/{place}"


def _ticks(place: int) -> str:
    return f"ticks/{place}"


def _say(store: Store, key: str) -> bool:
    store.set(key, "1")
    return True


def _name_of_world(standings: Sequence[Standing]) -> str:
    """A name that no other world has, the same on all its members."""
    return hashlib.sha256("".join(each.nonce for each in standings).encode()).hexdigest()
