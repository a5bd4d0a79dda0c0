"""Who got what another job wished for, and at which bids."""

from __future__ import annotations

from autoscaler.economics.reasons import Contest
from autoscaler.economics.supply import Supply
from autoscaler.policies.sharing import Share, Sharing


def contest_over(job: str, sharing: Sharing, supply: Supply) -> Contest | None:
    """The limit for which this job has less than it wished, and its rival there.

    None where it has its wish, or no limit keeps it from it.
    """
    share = sharing.shares.get(job)
    if share is None or share.wish.target is None:
        return None
    given = _given(share, sharing)
    limit = _decisive(share, given, sharing, supply)
    if limit is None:
        return None
    held = share.wish.at.candidates.held
    missed = held if share.use(held, limit) > share.use(given, limit) else share.wish.target
    others = [other for key, other in sharing.shares.items() if key != job]
    rival, bid, took_it = _rival(others, limit, sharing)
    return Contest(
        limit=supply.limits[limit],
        own_usd_per_second=_per_unit(share, given, missed, limit),
        rival=rival,
        rival_usd_per_second=bid,
        took_it=took_it,
        own_weight=share.wish.job.weight,
        rival_weight=1.0 if rival is None else sharing.shares[rival].wish.job.weight,
    )


def _given(share: Share, sharing: Sharing) -> int | None:
    return share.wish.at.candidates.index(sharing.targets[share.wish.job.id])


def _decisive(share: Share, given: int | None, sharing: Sharing, supply: Supply) -> int | None:
    """The limit of the highest price among those of which the wish would have used more."""
    wished = share.wish.target
    prices = sharing.award.shadow_prices
    more = [
        limit
        for limit in range(len(supply.limits))
        if share.use(wished, limit) > share.use(given, limit)
    ]
    return max(more, key=lambda limit: float(prices[limit]), default=None)


def _rival(others: list[Share], limit: int, sharing: Sharing) -> tuple[str | None, float, bool]:
    """Whoever was given more of the limit at the highest bid, or else holds it at the lowest."""
    takers: list[tuple[float, str]] = []
    holders: list[tuple[float, str]] = []
    for other in others:
        held, given = other.wish.at.candidates.held, _given(other, sharing)
        if other.use(given, limit) > other.use(held, limit):
            takers.append((_per_unit(other, held, given, limit), other.wish.job.id))
        elif other.use(given, limit) > 0:
            holders.append((_per_unit(other, None, given, limit), other.wish.job.id))
    if takers:
        bid, rival = max(takers)
        return rival, bid, True
    if holders:
        bid, rival = min(holders)
        return rival, bid, False
    return None, 0.0, False


def _per_unit(share: Share, less: int | None, more: int | None, limit: int) -> float:
    """$ per second, weighted, for each unit that `more` uses beyond `less`; never below 0."""
    units = share.use(more, limit) - share.use(less, limit)
    worth = share.wish.job.weight * (share.value(more) - share.value(less))
    return max(worth / units, 0.0)
