"""A callback that begins no trial which a deadline or a budget would cut off."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

__all__ = ["ReserveCallback"]


class ReserveCallback:
    """Stops a study once the time or money left is what its running trials still need.

    A trial is taken to last as long as the slower ones of the trials that were trained to their
    ends. A study without such a trial goes on.

    Args:
        timeout_seconds: the study's time, from the making of this object. None: no limit.
        budget_usd: the study's money. It needs `usd_per_hour`. None: no limit.
        usd_per_hour: the price of what one trial runs on.
        quantile: the share of completed trials that were as quick as a trial is taken to be.
        now: the clock.

    Raises:
        ValueError: neither limit is given, or an argument is out of its range.
    """

    def __init__(
        self,
        timeout_seconds: float | None = None,
        budget_usd: float | None = None,
        usd_per_hour: float | None = None,
        quantile: float = 0.9,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        if timeout_seconds is None and budget_usd is None:
            raise ValueError("give timeout_seconds, or budget_usd and usd_per_hour")
        if (budget_usd is None) != (usd_per_hour is None):
            raise ValueError("budget_usd and usd_per_hour go together")
        limits = {
            "timeout_seconds": timeout_seconds,
            "budget_usd": budget_usd,
            "usd_per_hour": usd_per_hour,
        }
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value} must be more than 0")
        if not 0 < quantile <= 1:
            raise ValueError(f"quantile={quantile} must be above 0, and at most 1")
        self._timeout_seconds = float("inf") if timeout_seconds is None else timeout_seconds
        self._budget_usd = float("inf") if budget_usd is None else budget_usd
        self._usd_per_second = (usd_per_hour or 0.0) / 3600
        self._quantile = quantile
        self._now = now
        self._begun = now()

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Stop the study if one more trial would not come to its end."""
        trials = study.get_trials(deepcopy=False)
        complete = [self._seconds(one) for one in trials if one.state is TrialState.COMPLETE]
        if not complete:
            return
        whole = float(np.quantile(complete, self._quantile))
        to_come = sum(
            max(whole - self._seconds(one), 0.0)
            for one in trials
            if one.state is TrialState.RUNNING
        )
        used = sum(self._seconds(one) for one in trials)
        usd = (used + to_come + whole) * self._usd_per_second
        seconds = (self._now() - self._begun).total_seconds() + whole
        if usd > self._budget_usd or seconds > self._timeout_seconds:
            study.stop()

    def _seconds(self, trial: FrozenTrial) -> float:
        """Return how long a trial has run so far."""
        if trial.datetime_start is None:
            return 0.0
        return ((trial.datetime_complete or self._now()) - trial.datetime_start).total_seconds()
