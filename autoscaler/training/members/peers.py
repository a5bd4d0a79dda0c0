"""How the leader of an instance takes part in the job: what its crew needs of either engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autoscaler.training.collectives.gradient_groups import FormGradients
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.members.catching_up import CatchingUp
from autoscaler.training.members.rounds import Membership


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Where the lighthouse is, who we are, which address our ports may use, and how gradients
    cross instances."""

    lighthouse: str
    replica: str
    bind_address: str
    peer_token: str
    heartbeat_timeout_seconds: float
    collective_timeout_seconds: float
    form_gradients: FormGradients


class Peers(Protocol):
    """The instances that train together now. Not thread-safe; used by the leader only.

    `form` alone speaks to the lighthouse. Between two calls a thread hears from it who is there.
    """

    sums: Sums
    """Sums over the instances of the membership that was formed last."""

    catching_up: CatchingUp
    """How the members of a new membership come to have one state."""

    @property
    def is_lighthouse_there(self) -> bool:
        """The lighthouse can be reached."""
        ...

    @property
    def sees_change(self) -> bool:
        """The lighthouse hears others than the members: somebody joins, or is lost."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the instances that are members, by their index; empty before `form`."""
        ...

    def form(self, step: int) -> Membership:
        """Agree on who takes part from step `step` on. Blocks; who is behind returns with the
        state of the others loaded.

        All members form together, once one of them has seen a change or a sum has failed. While
        the lighthouse is away, members whose peers all answer keep the membership they have.
        """
        ...

    def commit(self) -> bool:
        """Whether this step's sums are whole. False: throw them away and `form` again.

        The verdict is this instance's own. An instance that has lost a step which another one
        has committed gets the state of that one at the next `form`.
        """
        ...

    def expect_leave(self) -> None:
        """A member leaves before the next `form`: that it is not heard any more is no loss."""
        ...

    def announce_leave(self) -> None:
        """Let the others form without us from now on, but go on taking part until `leave`."""
        ...

    def leave(self) -> None:
        """Close all ports. The others go on without us."""
        ...
