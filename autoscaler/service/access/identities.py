"""Whether the instance that joins is the one that was launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.domain.instance import HeldInstance
from providers.identity import IdentityVerifier

# How far the clocks of a cloud and of the controller's host may be apart.
CLOCK_DIFFERENCE_SECONDS: Final = 300.0


class Identities:
    """Compares what instances prove with what was launched.

    `verifiers` are the providers' own, by provider; None where a cloud signs nothing.
    """

    def __init__(self, verifiers: Mapping[str, IdentityVerifier | None]) -> None:
        self._verifiers = verifiers

    def check(self, held: HeldInstance, provider: str, proof: str | None) -> None:
        """That who brings `proof` is `held`, as far as its provider lets that be proven.

        Raises:
            NotAllowed: it is somebody else, or may be.
            Unavailable: not known yet, for its cloud has not shown `held`.
        """
        verifier = self._verifiers.get(provider)
        if verifier is None:
            return
        if proof is None:
            raise NotAllowed(
                f"{held.id} brings no proof of which instance it is: apply Terraform again, so "
                "that its launch template is of this release"
            )
        identity = verifier.verify(proof)
        if held.cloud_id is None or held.launched_seconds is None:
            raise Unavailable(f"{held.id} is not in its cloud's list yet, which says who it is")
        if identity.instance != held.cloud_id:
            raise NotAllowed(f"{identity.instance} came for {held.id}, which is {held.cloud_id}")
        # What waits in a queue for its capacity is there, to its cloud, from its order on.
        first_seconds = min(held.requested_seconds, held.launched_seconds)
        if identity.started_seconds < first_seconds - CLOCK_DIFFERENCE_SECONDS:
            raise NotAllowed(
                f"the proof of {held.cloud_id} is older than its order: check the clock of the "
                "controller's host"
            )
