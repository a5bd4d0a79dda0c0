"""The instances of a job where torchft can't be had: they go on from a checkpoint at a change.

It has `torch.distributed` only. A roster, a server beside the controller or wherever the
lighthouse would be, says at every change who trains together (see
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

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.roster import Ask, Call, Order, OrderKind
from autoscaler.training.collectives.ports import bound_store, use_interface_of
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.collectives.world import Meeting, first_line
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.peers import QuorumSettings
from autoscaler.training.members.roster_line import RosterLine
from autoscaler.training.members.rounds import Membership
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.training_state import TrainingState

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
        state: TrainingState,
        checkpoints: Checkpoints,
    ) -> None:
        self._clock = clock
        self._state = state
        self._checkpoints = checkpoints
        use_interface_of(settings.bind_address)
        self._store, port = bound_store(settings.bind_address)
        # An instance that comes back is another member than the one that was lost.
        self._name = f"{settings.replica}.{uuid.uuid4().hex[:8]}"
        self._attendance = Attendance(clock)
        self._line = RosterLine(
            settings.lighthouse,
            Call(self._name, f"{settings.bind_address}:{port}"),
            settings.heartbeat_timeout_seconds / _SIGNS_PER_TIMEOUT,
            self._attendance,
        )
        timeout_seconds = settings.collective_timeout_seconds
        self.sums = Sums(
            SumSettings(settings.form_gradients, timeout_seconds, timeout_seconds),
            lambda: self._line.is_there and self._attendance.misses_member,
            clock,
        )
        self._origin = self._name
        self._members: tuple[str, ...] = ()

    @property
    def is_lighthouse_there(self) -> bool:
        """The roster can be reached."""
        return self._line.is_there

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the instances that are members, without their random parts."""
        return tuple(member.rpartition(".")[0] for member in self._members)

    @property
    def sees_change(self) -> bool:
        """The roster hears others than the members."""
        return self._line.is_there and self._attendance.differs

    def form(self, step: int) -> Membership:
        """Agree on who takes part from step `step` on. Blocks; see `Peers`.

        Raises:
            CheckpointError: the others go on from a checkpoint that we can't read.
        """
        self._line.open()
        before = self._members
        healed = published = False
        while True:
            ask = Ask(self._origin, step, self.sums.has_failed, published)
            order = self._line.ask(ask)
            if order is None and len(before) == 1 and self._line.connect():
                # Who stood still for long, alone, has no peer to learn from that others train now.
                order = self._line.ask(ask)
            if order is None:
                if before and not self.sums.has_failed and not healed:
                    return self._membership(before, healed)
                self._clock.sleep(_PATIENCE_SECONDS)
            elif order.kind is OrderKind.PUBLISH:
                self._state.save(self._checkpoints, at_once=True)
                published = True
            elif order.kind is OrderKind.LOAD:
                self.sums.abandon()
                self._load(order)
                step, healed = order.step, True
            elif self._enter(order):
                if before not in ((), self._members) and not published:
                    self._save_in_background()
                return self._membership(before, healed)

    def commit(self) -> bool:
        """Whether this step's sums are whole. False: throw them away and `form` again."""
        return self.sums.are_whole()

    def expect_leave(self) -> None:
        """A member leaves before the next `form`: that it is not heard any more is no loss."""
        self._attendance.expect_leave()

    def announce_leave(self) -> None:
        """Let the others form without us from now on, but go on taking part until `leave`."""
        self._line.close()

    def leave(self) -> None:
        """Close all ports. The others go on without us."""
        self._line.close()
        self.sums.close()

    def _membership(self, before: tuple[str, ...], healed: bool) -> Membership:
        members = self._members
        return Membership(len(members), members.index(self._name), healed, members != before)

    def _enter(self, order: Order) -> bool:
        """Be a member of the world that is ordered; whether it has formed."""
        if order.origin != self._origin:
            index, members = order.members.index(self._name), len(order.members)
            try:
                self.sums.enter(Meeting(order.store, order.origin, index, members))
            except RuntimeError as error:
                _log.warning("a peer does not answer: %s", first_line(error))
                return False
        self._origin, self._members = order.origin, order.members
        self._attendance.form(self._members)
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
