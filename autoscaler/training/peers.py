"""How the leader of an instance takes part in the job: what its crew needs of either engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from autoscaler.training.rounds import Membership


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Where the lighthouse is, who we are, and which address our ports may use."""

    lighthouse: str
    replica: str
    bind_address: str
    peer_token: str
    heartbeat_timeout_seconds: float
    collective_timeout_seconds: float


class Peers(Protocol):
    """The instances that train together now. Not thread-safe; used by the leader only."""

    @property
    def is_lighthouse_there(self) -> bool:
        """The lighthouse can be reached."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the instances that are members, by their index; empty before `form`."""
        ...

    def form(self, step: int) -> Membership:
        """Agree on who takes part from step `step` on. Blocks; who is behind returns with the
        state of the others loaded.

        While the lighthouse is away, members whose peers all answer keep the membership they
        have.
        """
        ...

    def all_reduce(self, tensor: torch.Tensor, timeout_seconds: float | None = None) -> None:
        """Sum `tensor` over the instances, in place.

        After a failure `has_failed` until the next `form`: the step can't be committed, what
        `tensor` holds is of no use, and further calls do nothing.
        """
        ...

    @property
    def has_failed(self) -> bool:
        """A collective has failed since `form`."""
        ...

    def commit(self) -> bool:
        """Whether this step's gradients are whole. False: throw them away and `form` again."""
        ...

    def announce_leave(self) -> None:
        """Let the others form without us from now on, but go on taking part until `leave`."""
        ...

    def leave(self) -> None:
        """Close all ports. The others go on without us."""
        ...
