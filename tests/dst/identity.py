"""Proof of an instance's identity without cryptography: cloud id and start time as text."""

from __future__ import annotations

from autoscaler.domain.errors import NotAllowed
from providers.identity import IdentityVerifier, InstanceIdentity
from tests.dst.cloud import Machine


def proof_of(machine: Machine) -> str:
    """Return the proof that a machine's metadata service would sign."""
    return f"signed {machine.id} {machine.launched_seconds}"


class SignedIdentity(IdentityVerifier):
    """Verifier of `proof_of`."""

    def verify(self, proof: str) -> InstanceIdentity:
        """Return the identity in a proof.

        Raises:
            NotAllowed: the proof is forged.
        """
        words = proof.split()
        if len(words) != 3 or words[0] != "signed":
            raise NotAllowed("the proof of identity is forged")
        return InstanceIdentity(words[1], float(words[2]))
