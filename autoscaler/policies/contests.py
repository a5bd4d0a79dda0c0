"""Who got what another job wished for, and at which bids."""

from __future__ import annotations

import numpy as np

from autoscaler.economics.reasons import Contest
from autoscaler.economics.supply import Supply, fits
from autoscaler.policies.sharing import Share, Sharing


def contest_over(job: str, sharing: Sharing, supply: Supply) -> Contest | None:
    """The limit for which this job has less than it wished, and its rival there.

    None where it has its wish, or no limit keeps it from it.
    """
    share = sharing.shares.get(job)
    if share is None or share.wish.target is None:
        return None
    wished = share.wish.target
    given = _given(share, sharing)
    limit = _decisive(share, given, sharing, supply)
    if limit is None:
        return None
    held = share.wish.at.candidates.held
    lost = held if share.use(held, limit) > share.use(given, limit) else wished
    rivals = [_taker(other, limit, sharing) for key, other in sharing.shares.items() if key != job]
    taken = [found for found in rivals if found is not None]
    took_it = bool(taken)
    if not taken:
        holders = [_holder(other, limit, sharing) for key, other in sharing.shares.items() if key != job]
        taken = [found for found in holders if found is not None]
    bid, rival = (max if took_it else min)(taken, default=(0.0, None))
    return Contest(
        limit=supply.limits[limit],
        own_usd_per_second=_per_unit(share, given, lost, limit),
        rival=rival,
        rival_usd_per_second=bid,
        took_it=took_it,
    )
