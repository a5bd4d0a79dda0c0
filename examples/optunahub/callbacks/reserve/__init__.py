"""Callback that stops a study before a deadline or a budget would interrupt its next trial."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

__all__ = ["ReserveCallback"]


class ReserveCallback:
    """Callback that stops a study if the time or money left is too short for one more trial.

    Running trials need money, too. The duration of a trial is estimated by a quantile of the
    durations of complete trials. A study without a complete trial continues.

    Args:
        timeout_seconds: time limit of the study, from the creation of this object. None: no limit.
        budget_usd: budget of the study in US dollars; needs `usd_per_hour`. None: no limit.
        usd_per_hour: price of the machine of one trial.
        quantile: quantile of durations that estimates the duration of a trial, from 0 to 1.
        now: function that returns the current time.

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
            raise ValueError("set timeout_seconds, or budget_usd and usd_per_hour")
        if (budget_usd is None) != (usd_per_hour is None):
            raise ValueError("budget_usd and usd_per_hour need each other: set both or none")
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
        self._start = now()

    def __call__(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Stop the study if one more trial would exceed the time limit or the budget."""
        trials = study.get_trials(deepcopy=False)
        durations = [
            self._seconds(other) for other in trials if other.state is TrialState.COMPLETE
        ]
        if not durations:
            return
        estimate = float(np.quantile(durations, self._quantile))
        remaining = sum(
            max(estimate - self._seconds(other), 0.0)
            for other in trials
            if other.state is TrialState.RUNNING
        )
        used = sum(self._seconds(other) for other in trials)
        usd = (used + remaining + estimate) * self._usd_per_second
        seconds = (self._now() - self._start).total_seconds() + estimate
        if usd > self._budget_usd or seconds > self._timeout_seconds:
            study.stop()

    def _seconds(self, trial: FrozenTrial) -> float:
        """Return the seconds that a trial has run so far; 0 if it has not started."""
        if trial.datetime_start is None:
            return 0.0
        return ((trial.datetime_complete or self._now()) - trial.datetime_start).total_seconds()
