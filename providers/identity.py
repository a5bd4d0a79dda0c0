"""How an instance proves to the controller that it is the one that its cloud launched.

A join token says which instance was meant to come; whoever reads it could come in its place. A
cloud that signs who an instance is has a verifier of that here. What is proven is compared with
what was launched in `autoscaler/service/identities.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Who an instance is by its cloud's word.

    `instance` is the cloud's own id of it; it began to start at `started_seconds` since the epoch.
    """

    instance: str
    started_seconds: float


class IdentityVerifier(ABC):
    """Checks what instances of one provider bring as their proof."""

    @abstractmethod
    def verify(self, proof: str) -> InstanceIdentity:
        """The instance that a proof is of. Asks nobody, and says nothing of whose it may be.

        Raises:
            NotAllowed: the cloud has not signed it so, or for somewhere else.
        """
