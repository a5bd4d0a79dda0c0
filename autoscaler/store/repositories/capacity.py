"""Repository of offers that a cloud refused, with the end of their back-off."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clock import is_waiting

LONGEST_REFUSAL_SECONDS: Final = 3600.0
"""Longest back-off from an offer. One that ends later is over: the clock was set back."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of an offer by its cloud, for `in_a_row` waves of launches in a row.

    The offer is not requested again before `until_seconds`, in seconds since the epoch. `reason`
    is the latest message of the cloud.
    """

    offer: str
    error_kind: str
    in_a_row: int
    until_seconds: float
    reason: str = ""

    def waves_before(self, now_seconds: float) -> int:
        """Return the number of refused waves whose back-off is over.

        Refusals during a back-off belong to the wave that started it.
        """
        return self.in_a_row - self.holds(now_seconds)

    def holds(self, now_seconds: float) -> bool:
        """Return whether the back-off goes on."""
        return is_waiting(self.until_seconds, now_seconds, LONGEST_REFUSAL_SECONDS)

    def after(self, known: Refusal | None, now_seconds: float) -> Refusal:
        """Return this new refusal, merged with the `known` refusal of the same offer."""
        if known is None:
            return self
        known_seconds = known.until_seconds if known.holds(now_seconds) else now_seconds
        return replace(
            self,
            in_a_row=known.waves_before(now_seconds) + 1,
            until_seconds=max(known_seconds, self.until_seconds),
        )


Refuse = Callable[[Refusal | None], Refusal]
"""Function from the known refusal of an offer, None if there is none, to the one to store."""


class Capacity(ABC):
    """Refusals of the offers of one store."""

    def refused(
        self,
        offer: str,
        error_kind: str,
        now_seconds: float,
        until_seconds: float,
        reason: str = "",
    ) -> Refusal:
        """Store a refusal of an offer, which is unavailable until `until_seconds`.

        Refusals during a back-off belong to one wave of launches and count once, so that a
        back-off that doubles with `in_a_row` does not jump.
        """
        refusal = Refusal(offer, error_kind, 1, until_seconds, reason)
        return self._change(offer, lambda known: refusal.after(known, now_seconds))

    def amend(self, offer: str, change: Callable[[Refusal], Refusal]) -> None:
        """Store the result of `change` for the refusal of an offer, if the offer was refused."""
        known = self.refusals().get(offer)
        if known is not None:
            self._change(offer, lambda latest: change(latest or known))

    @abstractmethod
    def accepted(self, offer: str) -> None:
        """Delete the refusal of an offer, after a launch of the offer succeeded."""

    @abstractmethod
    def refusals(self) -> Mapping[str, Refusal]:
        """Return the refusals since the last accepted launch, by offer, expired ones included."""

    @abstractmethod
    def unavailable(self, now_seconds: float) -> frozenset[str]:
        """Return the offers whose back-off is not over."""

    @abstractmethod
    def _change(self, offer: str, refuse: Refuse) -> Refusal:
        """Store and return the result of `refuse` for the known refusal of an offer."""
