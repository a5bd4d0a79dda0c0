"""Verification that a joining instance is the launched one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.domain.instance import HeldInstance
from providers.identity import IdentityVerifier

# Maximum difference between the clocks of a cloud and of the controller's host.
CLOCK_DIFFERENCE_SECONDS: Final = 300.0


class Identities:
    """Verifier of the identity documents of instances.

    `verifiers` are the providers' own, by provider; None for a cloud that signs no documents.
    """

    def __init__(self, verifiers: Mapping[str, IdentityVerifier | None]) -> None:
        self._verifiers = verifiers

    def check(self, held: HeldInstance, provider: str, proof: str | None) -> None:
        """Check that `proof` identifies `held`, as far as its provider supports it.

        Raises:
            NotAllowed: the proof is missing, or identifies another instance.
            Unavailable: the cloud has not listed `held` yet.
        """
        verifier = self._verifiers.get(provider)
        if verifier is None:
            return
        if proof is None:
            raise NotAllowed(
                f"{held.id} sends no proof of its identity: apply Terraform again, so "
                "that its launch template is of this release"
            )
        identity = verifier.verify(proof)
        if held.cloud_id is None or held.launched_seconds is None:
            raise Unavailable(
                f"{held.id} is not in its cloud's list yet: its identity can't be checked"
            )
        if identity.instance != held.cloud_id:
            raise NotAllowed(
                f"the proof names {identity.instance}, but {held.id} is {held.cloud_id}"
            )
        # For its cloud, an instance in a capacity queue exists from its order on.
        first_seconds = min(held.requested_seconds, held.launched_seconds)
        if identity.started_seconds < first_seconds - CLOCK_DIFFERENCE_SECONDS:
            raise NotAllowed(
                f"the proof of {held.cloud_id} is older than its order: check the clock of the "
                "controller's host"
            )
