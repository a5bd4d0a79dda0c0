"""The instances of a job whose lighthouse is a roster of our own.

It needs `torch.distributed` only. A roster, a server beside the controller or wherever the
lighthouse would be, says at every change who trains together (see
`autoscaler.lighthouse.roster`). A joiner gets the state from the members, as with torchft. An
instance that is alive is waited for, however long it takes between two rounds.
"""

from __future__ import annotations

import logging
import uuid

from autoscaler.clock import Clock
from autoscaler.domain.roster import Ask, Call, Order
from autoscaler.training.collectives.ports import bound_store, use_interface_of
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.collectives.world import Meeting, first_line
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.catching_up import CatchingUp
from autoscaler.training.members.peers import QuorumSettings
from autoscaler.training.members.roster_line import RosterLine
from autoscaler.training.members.rounds import Membership
from autoscaler.training.state.training_state import TrainingState

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.1
_SIGNS_PER_TIMEOUT = 6


class RosterQuorum:
    """Our membership in one job by its roster; see `Peers`."""

    def __init__(self, settings: QuorumSettings, clock: Clock, state: TrainingState) -> None:
        self._settings = settings
        self._clock = clock
        use_interface_of(settings.bind_address)
        self._store, self._port = bound_store(settings.bind_address)
        # An instance that comes back is another member than the one that was lost.
        self._name = f"{settings.replica}.{uuid.uuid4().hex[:8]}"
        self._attendance = Attendance(clock)
        self._line = self._new_line()
        timeout_seconds = settings.collective_timeout_seconds
        self.sums = Sums(
            SumSettings(settings.form_gradients, timeout_seconds, timeout_seconds),
            lambda: self._line.is_there and self._attendance.misses_member,
            clock,
        )
        self.catching_up = CatchingUp(
            settings.bind_address, settings.peer_token, state, self.sums, clock
        )
        self._world = ""
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
        """Agree on who takes part from step `step` on. Blocks; see `Peers`."""
        self._line.open()
        before, healed = self._members, False
        while True:
            ask = Ask(self._world, self.sums.has_failed)
            order = self._line.ask(ask)
            if order is None and len(before) == 1 and self._line.connect():
                # Who stood still for long, alone, has no peer to learn from that others train now.
                order = self._line.ask(ask)
            if order is None:
                if before and not self.sums.has_failed:
                    return self._membership(before, healed)
                self._clock.sleep(_PATIENCE_SECONDS)
                continue
            received = self._enter(order)
            healed = healed or bool(received)
            if received is not None:
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
        self.catching_up.close()

    def _membership(self, before: tuple[str, ...], healed: bool) -> Membership:
        members = self._members
        return Membership(len(members), members.index(self._name), healed, members != before)

    def _enter(self, order: Order) -> bool | None:
        """Be a member of the world that is ordered, with the state that its members have.

        Returns:
            Whether the state was received; None where the world has not formed.
        """
        received: bool | None = False
        if order.world != self._world:
            index, members = order.members.index(self._name), len(order.members)
            try:
                meeting = Meeting(order.store, order.world, index, members)
                self.sums.enter(meeting, lambda: self._attendance.misses(order.members))
            except RuntimeError as error:
                _log.warning("a peer does not answer: %s", first_line(error))
                return None
            self._attendance.form(order.members)
            received = self.catching_up.settle()
            if received is None:
                self._stay_away()
                return None
        self._world, self._members = order.world, order.members
        self._attendance.form(self._members)
        return received

    def _stay_away(self) -> None:
        """Let the others train for a while, where our transfers have stalled."""
        if self.catching_up.patience_seconds > 0:
            self._line.close()
            self._clock.sleep(self.catching_up.patience_seconds)
            self._line = self._new_line()
            self._line.open()

    def _new_line(self) -> RosterLine:
        settings = self._settings
        return RosterLine(
            settings.lighthouse,
            Call(self._name, f"{settings.bind_address}:{self._port}"),
            settings.heartbeat_timeout_seconds / _SIGNS_PER_TIMEOUT,
            self._attendance,
        )
