"""Who got what another job wished for, and at which bids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest

from autoscaler.economics.reasons import Contest
from autoscaler.economics.supply import Supply
from autoscaler.policies.sharing import Share, Sharing


@dataclass(frozen=True, slots=True)
class _Rivals:
    """Of one limit, (bid, job) of those given more of it, the highest two bids, and of those that
    hold some, the lowest two: the first of them that is another is a job's rival."""

    takers: Sequence[tuple[float, str]]
    holders: Sequence[tuple[float, str]]

    def of(self, job: str) -> tuple[str | None, float, bool]:
        """Who was given more at the highest bid, or else holds it at the lowest."""
        for ranked, took_it in ((self.takers, True), (self.holders, False)):
            for bid, rival in ranked:
                if rival != job:
                    return rival, bid, took_it
        return None, 0.0, False


class Contests:
    """Why a sharing gave jobs less than they wished; what all were given is looked at once."""

    def __init__(self, sharing: Sharing, supply: Supply) -> None:
        self._sharing = sharing
        self._supply = supply
        self._rivals: dict[int, _Rivals] = {}
        self._given = {
            job: share.wish.at.candidates.index(sharing.targets[job])
            for job, share in sharing.shares.items()
        }

    def over(self, job: str) -> Contest | None:
        """The limit for which this job has less than it wished, and its rival there.

        None where it has its wish, or no limit keeps it from it.
        """
        share = self._sharing.shares.get(job)
        if share is None or share.wish.target is None:
            return None
        given = self._given[job]
        limit = self._decisive(share, given)
        if limit is None:
            return None
        held = share.wish.at.candidates.held
        missed = held if share.use(held, limit) > share.use(given, limit) else share.wish.target
        if limit not in self._rivals:
            self._rivals[limit] = self._rivals_over(limit)
        rival, bid, took_it = self._rivals[limit].of(job)
        return Contest(
            limit=self._supply.limits[limit],
            own_usd_per_second=_per_unit(share, given, missed, limit),
            rival=rival,
            rival_usd_per_second=bid,
            took_it=took_it,
            own_weight=share.wish.job.weight,
            rival_weight=1.0 if rival is None else self._sharing.shares[rival].wish.job.weight,
        )

    def _decisive(self, share: Share, given: int | None) -> int | None:
        """The limit of the highest price among those of which the wish would have used more."""
        wished = share.wish.target
        prices = self._sharing.award.shadow_prices
        more = [
            limit
            for limit in range(len(self._supply.limits))
            if share.use(wished, limit) > share.use(given, limit)
        ]
        return max(more, key=lambda limit: float(prices[limit]), default=None)

    def _rivals_over(self, limit: int) -> _Rivals:
        takers: list[tuple[float, str]] = []
        holders: list[tuple[float, str]] = []
        for job, share in self._sharing.shares.items():
            held, given = share.wish.at.candidates.held, self._given[job]
            if share.use(given, limit) > share.use(held, limit):
                takers.append((_per_unit(share, held, given, limit), job))
            elif share.use(given, limit) > 0:
                holders.append((_per_unit(share, None, given, limit), job))
        return _Rivals(nlargest(2, takers), nsmallest(2, holders))


def _per_unit(share: Share, less: int | None, more: int | None, limit: int) -> float:
    """$ per second, weighted, for each unit that `more` uses beyond `less`; never below 0."""
    units = share.use(more, limit) - share.use(less, limit)
    worth = share.wish.job.weight * (share.value(more) - share.value(less))
    return max(worth / units, 0.0)
