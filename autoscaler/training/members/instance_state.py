"""State of an instance's ranks when members of a world send it and receive it.

All ranks of a plain model have one state. The leader serves it and receives it, and then sends it
to the other ranks. Of a sharded model each rank has a part, which it serves to the ranks of its
number and receives from them. The leader commands the other ranks meanwhile, which wait for it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.clock import Clock
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.members.state_transfer import FetchRun, StateTransfer

_log = logging.getLogger(__name__)

# Sent in place of a membership, which has at least one replica: a command follows.
COMMAND_FOLLOWS: Final = [0.0, 0.0, 0.0, 0.0]
# Interval at which ranks tell each other whether their transfers last.
_SLICE_SECONDS: Final = 0.2

# Waits until a condition holds; returns False if the world of the members has failed meanwhile.
WaitInWorld = Callable[[Callable[[], bool]], bool]


class Reception(StrEnum):
    """Result of receiving a state."""

    COMPLETE = "complete"
    FAILED = "failed"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True)
class Source:
    """Addresses of an instance's state servers by rank: all ranks, or the leader alone.

    The first ones serve the parts of one copy of a sharded model, in order.
    """

    addresses: tuple[str, ...]


class InstanceState(ABC):
    """State of all ranks of this instance, as its leader sends and receives it."""

    transfer: StateTransfer

    @property
    @abstractmethod
    def source(self) -> Source:
        """Addresses at which this instance serves its state."""

    @property
    @abstractmethod
    def is_torn(self) -> bool:
        """Whether a rank has received its state in part only."""

    @abstractmethod
    def expect(self) -> None:
        """Let receivers wait for a state that `serve` may provide, instead of refusing them."""

    @abstractmethod
    def serve(self, key: str) -> None:
        """Serve the present state, named `key`, until `stop`. It must not change."""

    @abstractmethod
    def stop(self) -> None:
        """Stop serving."""

    @abstractmethod
    def receive(
        self, key: str, sources: Sequence[Source], in_place: bool, wait_in_world: WaitInWorld
    ) -> Reception:
        """Receive and load the state `key` on all ranks; see `StateTransfer.begin`.

        Raises:
            MismatchError: the state is that of another model.
        """

    def close(self) -> None:
        """Close the server of this rank."""
        self.transfer.server.close()


class LeaderState(InstanceState):
    """State that the leader sends and receives for all ranks.

    `give_to_ranks` is called to send a received state to the other ranks of this instance.
    """

    def __init__(self, transfer: StateTransfer, clock: Clock) -> None:
        self.transfer = transfer
        self._clock = clock
        self.give_to_ranks: Callable[[], None] = lambda: None

    @property
    def source(self) -> Source:
        """Address of the leader's server."""
        return Source((self.transfer.server.address,))

    @property
    def is_torn(self) -> bool:
        """Whether the leader has received the state in part only."""
        return self.transfer.is_torn

    def expect(self) -> None:
        """Let receivers wait for a state that `serve` may provide, instead of refusing them."""
        self.transfer.server.expect()

    def serve(self, key: str) -> None:
        """Serve the present state, named `key`, until `stop`. It must not change."""
        self.transfer.serve(key)

    def stop(self) -> None:
        """Stop serving."""
        self.transfer.server.stop()

    def receive(
        self, key: str, sources: Sequence[Source], in_place: bool, wait_in_world: WaitInWorld
    ) -> Reception:
        """Receive and load the state `key`, and send it to the other ranks."""
        began_seconds = self._clock.monotonic()
        run = self.transfer.begin(key, [source.addresses[0] for source in sources], in_place)
        holds = wait_in_world(lambda: run.has_ended)
        run.end()
        if run.error is not None or not holds:
            return _failure(run.has_stalled, run)
        _log_transfer(run, self._clock.monotonic() - began_seconds)
        self.transfer.load()
        self.give_to_ranks()
        return Reception.COMPLETE


class RankCommandKind(StrEnum):
    """Kind of a command of the leader."""

    EXPECT = "expect"
    SERVE = "serve"
    RECEIVE = "receive"


@dataclass(frozen=True, slots=True)
class RankCommand:
    """Command of the leader to the other ranks of its instance."""

    kind: RankCommandKind
    key: str = ""
    sources: tuple[Source, ...] = ()
    in_place: bool = True


class PartedState(InstanceState):
    """State of which each rank has one of `shards` parts. All ranks create it together.

    A rank that is no leader calls `obey` when a command follows, and `stop` once none follows.
    """

    def __init__(
        self, instance: InstanceRanks, shards: int, transfer: StateTransfer, clock: Clock
    ) -> None:
        self.transfer = transfer
        self._instance = instance
        self._part = instance.rank % shards
        self._clock = clock
        self._source = Source(tuple(instance.values(transfer.server.address)))
        self._is_torn = False

    @property
    def source(self) -> Source:
        """Addresses of the servers of all ranks."""
        return Source((self.transfer.server.address, *self._source.addresses[1:]))

    @property
    def is_torn(self) -> bool:
        """Whether a rank has received its part incompletely."""
        return self._is_torn

    def expect(self) -> None:
        """Let receivers wait for parts that `serve` may provide, instead of refusing them."""
        self._carry_out(self._sent(RankCommand(RankCommandKind.EXPECT)))

    def serve(self, key: str) -> None:
        """Serve the parts of the state `key` on all ranks, until `stop`."""
        self._carry_out(self._sent(RankCommand(RankCommandKind.SERVE, key)))

    def stop(self) -> None:
        """Stop serving on this rank; the other ranks stop at the next message of the leader."""
        self.transfer.server.stop()

    def receive(
        self, key: str, sources: Sequence[Source], in_place: bool, wait_in_world: WaitInWorld
    ) -> Reception:
        """Receive and load the parts of the state `key` on all ranks."""
        command = RankCommand(RankCommandKind.RECEIVE, key, tuple(sources), in_place)
        return self._receive(self._sent(command), wait_in_world)

    def obey(self) -> None:
        """Carry out the leader's command, which follows `COMMAND_FOLLOWS`."""
        self.stop()
        command: RankCommand = self._instance.value_from_leader(None)
        self._carry_out(command)

    def _sent(self, command: RankCommand) -> RankCommand:
        self._instance.from_leader(COMMAND_FOLLOWS)
        sent: RankCommand = self._instance.value_from_leader(command)
        return sent

    def _carry_out(self, command: RankCommand) -> None:
        match command.kind:
            case RankCommandKind.EXPECT:
                self.transfer.server.expect()
            case RankCommandKind.SERVE:
                self.transfer.serve(command.key)
            case RankCommandKind.RECEIVE:
                self._receive(command, lambda has_ended: True)

    def _receive(self, command: RankCommand, wait_in_world: WaitInWorld) -> Reception:
        """Receive this rank's part, and load it if all ranks have received theirs."""
        began_seconds = self._clock.monotonic()
        addresses = [source.addresses[self._part] for source in command.sources]
        run = self.transfer.begin(command.key, addresses, command.in_place)
        while self._all_last(run, wait_in_world):
            pass
        has_failed = not run.has_ended or run.error is not None
        run.end()
        torn, failed, stalled = self._instance.sum(
            [float(self.transfer.is_torn), float(has_failed), float(run.has_stalled)]
        )
        self._is_torn = torn > 0
        if failed > 0:
            return _failure(stalled > 0, run)
        if self._instance.is_leader:
            _log_transfer(run, self._clock.monotonic() - began_seconds)
        self.transfer.load()
        self._instance.barrier()
        self._is_torn = False
        return Reception.COMPLETE

    def _all_last(self, run: FetchRun, wait_in_world: WaitInWorld) -> bool:
        """Wait a moment; return whether a rank still receives, and none has failed."""
        until_seconds = self._clock.monotonic() + _SLICE_SECONDS
        holds = wait_in_world(
            lambda: run.has_ended or self._clock.monotonic() >= until_seconds,
        )
        run.wait(max(until_seconds - self._clock.monotonic(), 0.0) if holds else 0.0)
        has_failed = not holds or (run.has_ended and run.error is not None)
        ended, failed = self._instance.sum([float(run.has_ended), float(has_failed)])
        return failed == 0 and ended < self._instance.ranks


def _failure(has_stalled: bool, run: FetchRun) -> Reception:
    if has_stalled:
        cause = run.error if run.has_stalled else "another rank's part stalls"
        _log.warning("the state can't be received: %s", cause)
        return Reception.STALLED
    return Reception.FAILED


def _log_transfer(run: FetchRun, seconds: float) -> None:
    _log.info("received %s bytes in %.1f s", f"{run.size_bytes:,}", seconds)
