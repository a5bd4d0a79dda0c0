"""The instances of a job where torchft can't be had: they go on from a checkpoint at a change.

It has `torch.distributed` only. A roster, a server beside the controller or wherever the
lighthouse would be, says at every round of steps who trains together (see
`autoscaler.lighthouse.roster`). What differs from a quorum of torchft's:

* A joiner gets the state through a checkpoint, which all instances of the job must be able to
  read, and the others wait while it is written and read.
* No process starts again, which would cost more than all the rest. But when somebody joins, all
  go on from what is in the checkpoint, as if they had.
* After a loss the others still have the state in memory, and go on with it; one that missed the
  last step gets it as a joiner does. What was done since the last checkpoint is done again only
  when all instances are lost.
"""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

import torch

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.roster import Ask, Call, Order, OrderKind
from autoscaler.training.checkpoint import Checkpoints
from autoscaler.training.peers import QuorumSettings
from autoscaler.training.ports import bound_store, use_interface_of
from autoscaler.training.roster_line import RosterLine
from autoscaler.training.rounds import Membership
from autoscaler.training.state import TrainingState
from autoscaler.training.world import World

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.1
_SIGNS_PER_TIMEOUT = 6


class RestartQuorum:
    """Our membership in one job without torchft; see `Peers`.

    A member that is alive is waited for, however long it takes between two rounds.
    """

    def __init__(
        self,
        settings: QuorumSettings,
        clock: Clock,
        device: torch.device,
        state: TrainingState,
        checkpoints: Checkpoints,
    ) -> None:
        self._clock = clock
        self._device = device
        self._state = state
        self._checkpoints = checkpoints
        self._timeout = timedelta(seconds=settings.collective_timeout_seconds)
        use_interface_of(settings.bind_address)
        self._store, port = bound_store(settings.bind_address)
        # An instance that comes back is another member than the one that was lost.
        self._name = f"{settings.replica}.{uuid.uuid4().hex[:8]}"
        self._line = RosterLine(
            settings.lighthouse,
            Call(self._name, f"{settings.bind_address}:{port}"),
            settings.heartbeat_timeout_seconds / _SIGNS_PER_TIMEOUT,
        )
        self._origin = self._name
        self._members: tuple[str, ...] = ()
        self._world: World | None = None
        self._failed = False

    @property
    def is_lighthouse_there(self) -> bool:
        """The roster can be reached."""
        return self._line.is_there

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the instances that are members, without their random parts."""
        return tuple(member.rpartition(".")[0] for member in self._members)

    @property
    def has_failed(self) -> bool:
        """A collective has failed since `form`."""
        return self._failed

    def form(self, step: int) -> Membership:
        """Agree on who takes part from step `step` on. Blocks; see `Peers`.

        Raises:
            CheckpointError: the others go on from a checkpoint that we can't read.
        """
        self._line.open()
        before = self._members
        healed = published = False
        while True:
            ask = Ask(self._origin, step, self._failed, published)
            order = self._line.ask(ask)
            if order is None and len(before) == 1 and self._line.connect():
                # Who stood still for long, alone, has no peer to learn from that others train now.
                order = self._line.ask(ask)
            if order is None:
                if before and not self._failed and not healed:
                    return self._membership(before, healed)
                self._clock.sleep(_PATIENCE_SECONDS)
            elif order.kind is OrderKind.PUBLISH:
                self._state.save(self._checkpoints, at_once=True)
                published = True
            elif order.kind is OrderKind.LOAD:
                self._abandon()
                self._load(order)
                step, healed = order.step, True
            elif self._enter(order):
                if before not in ((), self._members) and not published:
                    self._save_in_background()
                return self._membership(before, healed)

    def all_reduce(self, tensor: torch.Tensor, timeout_seconds: float | None = None) -> None:
        """Sum `tensor` over the instances, in place; see `Peers`."""
        if self._world is None or self._failed:
            return
        try:
            self._world.all_reduce(tensor, timeout_seconds)
        except RuntimeError as error:
            self._fail(error)

    def commit(self) -> bool:
        """Whether this step's gradients are whole. False: throw them away and `form` again."""
        return not self._failed

    def announce_leave(self) -> None:
        """Let the others form without us from now on, but go on taking part until `leave`."""
        self._line.close()

    def leave(self) -> None:
        """Close all ports. The others go on without us."""
        self._line.close()
        self._abandon()

    def _membership(self, before: tuple[str, ...], healed: bool) -> Membership:
        members = self._members
        return Membership(len(members), members.index(self._name), healed, members != before)

    def _enter(self, order: Order) -> bool:
        """Be a member of the world that is ordered; whether it has formed."""
        if order.origin == self._origin:
            return True
        self._abandon()
        try:
            if len(order.members) > 1:
                index = order.members.index(self._name)
                self._world = World(order, index, self._device, self._timeout)
        except RuntimeError as error:
            self._fail(error)
            return False
        self._origin, self._members, self._failed = order.origin, order.members, False
        return True

    def _load(self, order: Order) -> None:
        path = self._checkpoints.at(order.step)
        if path is not None:
            self._state.restore(self._checkpoints, path)
        elif self._name not in order.members:
            raise CheckpointError(
                f"no checkpoint of step {order.step}, from which the job goes on, is in "
                f"{self._checkpoints.place}: without torchft all instances of a job must "
                "share that place, and it must have room"
            )
        self._origin = order.origin

    def _save_in_background(self) -> None:
        """Have one of us keep the state as it is at this change."""
        if self._members[0] == self._name:
            self._state.save(self._checkpoints, at_once=False)

    def _fail(self, error: RuntimeError) -> None:
        _log.warning("a peer does not answer: %s", str(error).partition("\n")[0][:200])
        self._failed = True
        self._abandon()

    def _abandon(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.abandon()
