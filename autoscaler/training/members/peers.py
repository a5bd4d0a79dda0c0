"""Interface of the membership engines for the leader of an instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autoscaler.training.collectives.gradient_groups import FormGradients
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.members.rounds import Membership
from autoscaler.training.members.state_sync import StateSync


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Addresses, names, timeouts and gradient transport of a member."""

    lighthouse: str
    replica: str
    bind_address: str
    peer_token: str
    heartbeat_timeout_seconds: float
    collective_timeout_seconds: float
    form_gradients: FormGradients


class MembershipEngine(Protocol):
    """Instances that train together at present. Not thread-safe; used by the leader only.

    Only `form` sends requests to the lighthouse. A thread records between calls which instances
    the lighthouse hears.
    """

    sums: Sums
    """Sums over the instances of the last formed membership."""

    catching_up: StateSync
    """State synchronisation of the members of a new membership."""

    @property
    def is_lighthouse_there(self) -> bool:
        """Whether the lighthouse can be reached."""
        ...

    @property
    def sees_change(self) -> bool:
        """Whether the lighthouse hears others than the members: a join or a loss."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the member instances, by index; empty before `form`."""
        ...

    def form(self, step: int) -> Membership:
        """Form the membership after `step` committed steps, and obtain the state. Blocks.

        All members form together, once one of them has seen a change or a sum has failed. While
        the lighthouse is away, members whose peers all answer keep their membership.
        """
        ...

    def commit(self) -> bool:
        """Return whether this step's sums are whole; if not, discard them and call `form`.

        The result is this instance's own. An instance that lost a step which another one committed
        receives the other's state at the next `form`.
        """
        ...

    def expect_leave(self) -> None:
        """Expect that a member leaves before the next `form`; its silence is then no loss."""
        ...

    def announce_leave(self) -> None:
        """Let the others form without this instance, but keep taking part until `leave`."""
        ...

    def leave(self) -> None:
        """Close all ports; the others continue without this instance."""
        ...
