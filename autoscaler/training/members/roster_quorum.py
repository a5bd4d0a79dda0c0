"""Membership of a job's instances by a roster, without torchft.

It needs only `torch.distributed`. The roster is a server beside the controller or at the
lighthouse's place. At every change it decides which instances train together (see
`autoscaler.lighthouse.roster`). A joiner receives the state from the members, as with torchft. An
instance that is alive is awaited for any time between two rounds.
"""

from __future__ import annotations

import logging
import uuid

from autoscaler.clock import Clock
from autoscaler.domain.roster import Ask, MemberHeartbeat, QuorumReply
from autoscaler.training.collectives.ports import bound_store, use_interface_of
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.collectives.world import Meeting, first_line
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.peers import QuorumSettings
from autoscaler.training.members.roster_line import RosterLine
from autoscaler.training.members.rounds import Membership
from autoscaler.training.members.state_sync import StateSync
from autoscaler.training.state.training_state import TrainingState

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
_SIGNS_PER_TIMEOUT = 6


class RosterQuorum:
    """Membership of this instance in one job by the job's roster (see `MembershipEngine`)."""

    def __init__(self, settings: QuorumSettings, clock: Clock, state: TrainingState) -> None:
        self._settings = settings
        self._clock = clock
        use_interface_of(settings.bind_address)
        self._store, self._port = bound_store(settings.bind_address)
        # A restarted instance is a new member, other than the lost one.
        self._name = f"{settings.replica}.{uuid.uuid4().hex[:8]}"
        self._attendance = Attendance(clock)
        self._line = self._new_line()
        timeout_seconds = settings.collective_timeout_seconds
        self.sums = Sums(
            SumSettings(settings.form_gradients, timeout_seconds, timeout_seconds),
            lambda: self._line.is_there and self._attendance.misses_member,
            clock,
        )
        self.catching_up = StateSync(
            settings.bind_address, settings.peer_token, state, self.sums, clock
        )
        self._world = ""
        self._members: tuple[str, ...] = ()

    @property
    def is_lighthouse_there(self) -> bool:
        """Whether the roster can be reached."""
        return self._line.is_there

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the member instances, without their random parts."""
        return tuple(member.rpartition(".")[0] for member in self._members)

    @property
    def sees_change(self) -> bool:
        """Whether the roster hears others than the members."""
        return self._line.is_there and self._attendance.differs

    def form(self, step: int) -> Membership:
        """Form the membership after `step` committed steps; see `MembershipEngine`."""
        self._line.open()
        before, healed = self._members, False
        while True:
            ask = Ask(self._world, self.sums.has_failed)
            order = self._line.ask(ask)
            if order is None and len(before) == 1 and self._line.connect():
                # A lone member that was suspended has no peer that would report other members.
                order = self._line.ask(ask)
            if order is None:
                if before and not self.sums.has_failed:
                    return self._membership(before, healed)
                self._clock.sleep(_RETRY_SECONDS)
                continue
            received = self._enter(order)
            healed = healed or bool(received)
            if received is not None:
                return self._membership(before, healed)

    def commit(self) -> bool:
        """Return whether this step's sums are whole; if not, discard them and call `form`."""
        return self.sums.are_whole()

    def expect_leave(self) -> None:
        """Expect that a member leaves before the next `form`; its silence is then no loss."""
        self._attendance.expect_leave()

    def announce_leave(self) -> None:
        """Let the others form without this instance, but keep taking part until `leave`."""
        self._line.close()

    def leave(self) -> None:
        """Close all ports; the others continue without this instance."""
        self._line.close()
        self.sums.close()
        self.catching_up.close()

    def _membership(self, before: tuple[str, ...], healed: bool) -> Membership:
        members = self._members
        return Membership(len(members), members.index(self._name), healed, members != before)

    def _enter(self, order: QuorumReply) -> bool | None:
        """Enter the ordered world and obtain its members' state.

        Returns:
            Whether the state was received; None if the world has not formed.
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
        """Let the others train for a while, as this instance's transfers have stalled."""
        if self.catching_up.patience_seconds > 0:
            self._line.close()
            self._clock.sleep(self.catching_up.patience_seconds)
            self._line = self._new_line()
            self._line.open()

    def _new_line(self) -> RosterLine:
        settings = self._settings
        return RosterLine(
            settings.lighthouse,
            MemberHeartbeat(self._name, f"{settings.bind_address}:{self._port}"),
            settings.heartbeat_timeout_seconds / _SIGNS_PER_TIMEOUT,
            self._attendance,
        )
