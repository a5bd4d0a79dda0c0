"""Offers that a cloud refused, and until when they are not asked for again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Refusal:
    """`in_a_row` waves of launches of an offer were refused since one was accepted.

    `reason` is what the cloud said of the last.
    """

    offer: str
    error_kind: str
    in_a_row: int
    until_seconds: float
    reason: str = ""

    def waves_before(self, now_seconds: float) -> int:
        """How many waves were over by now: what is refused while one is kept away is of that."""
        return self.in_a_row - (self.until_seconds > now_seconds)

    def after(self, known: Refusal | None, now_seconds: float) -> Refusal:
        """Return this refusal, which came now, with what is `known` of those before."""
        if known is None:
            return self
        return replace(
            self,
            in_a_row=known.waves_before(now_seconds) + 1,
            until_seconds=max(known.until_seconds, self.until_seconds),
        )


Refuse = Callable[[Refusal | None], Refusal]
"""Makes the refusal to keep of an offer from the one that is known."""


class Capacity(ABC):
    """What is known of the capacity behind the offers."""

    def refused(
        self,
        offer: str,
        error_kind: str,
        now_seconds: float,
        until_seconds: float,
        reason: str = "",
    ) -> Refusal:
        """Keep away from an offer until then.

        Refusals that come while it is kept away from already belong to one wave of launches and
        count once, so that a back-off that doubles with `in_a_row` does not jump.
        """

        refusal = Refusal(offer, error_kind, 1, until_seconds, reason)
        return self._change(offer, lambda known: refusal.after(known, now_seconds))

    @abstractmethod
    def accepted(self, offer: str) -> None:
        """A launch of the offer succeeded: what was refused before is forgotten."""

    @abstractmethod
    def refusals(self) -> Mapping[str, Refusal]:
        """The refusals of each offer since it was last accepted, also those that are over."""

    @abstractmethod
    def unavailable(self, now_seconds: float) -> frozenset[str]:
        """The offers that are not to be asked for now."""

    @abstractmethod
    def _change(self, offer: str, refuse: Refuse) -> Refusal:
        """Keep what `refuse` makes of the refusal that is known of an offer."""
