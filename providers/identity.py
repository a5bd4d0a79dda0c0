"""Proof of an instance's identity, signed by its cloud.

A join token names the instance that may join, but anyone who reads the token could use it. A cloud
that signs instance identities therefore has a verifier. `autoscaler/service/identities.py`
compares the proven identity with the launched instance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Identity of an instance, as signed by its cloud.

    `instance` is the cloud's id of the instance. `started_seconds` is when the instance began to
    start, in seconds since the epoch.
    """

    instance: str
    started_seconds: float


class IdentityVerifier(ABC):
    """Verifier of the identity proofs of one provider's instances."""

    @abstractmethod
    def verify(self, proof: str) -> InstanceIdentity:
        """Return the instance that a proof identifies, without any call to the cloud.

        The caller checks whether this deployment owns the instance.

        Raises:
            NotAllowed: the cloud did not sign the proof, or signed it for another audience.
        """
