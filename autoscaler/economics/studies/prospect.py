"""What trials may come to be worth: their learning curves, as the guards of breadth want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoscaler.domain.errors import CurveError
from autoscaler.economics.studies.curves import Curve, Study, forecast
from autoscaler.economics.studies.moment import StudyMoment, TrialAt
from autoscaler.goodput.throughput import FloatArray

_HORIZONS = 5
_DRAWS = 64


def prospects(
    moment: StudyMoment, trials: Sequence[TrialAt]
) -> Mapping[str, tuple[FloatArray, FloatArray]]:
    """Of each trial amounts of work from now, (P,), and what it is worth after them, (K, P).

    More is better. Nothing where nobody has reported, or there are several directions.
    """
    directions = moment.study.terms.directions
    ended = [one.stands for one in moment.study.trials if one.stands.has_ended]
    told = [*(one.stands for one in trials), *ended]
    if len(directions) != 1 or not any(one.reports for one in told):
        return {}
    shares = np.linspace(0.0, 1.0, _HORIZONS)
    works = [shares * one.to_end for one in trials]
    horizons = [one.stands.progress + own for one, own in zip(trials, works, strict=True)]
    try:
        curves = [
            Curve([at for at, _ in one.reports], [value for _, value in one.reports])
            for one in told
        ]
        study = Study(curves, maximize=directions[0] == "maximize")
        found = forecast(study, range(len(trials)), np.array(horizons), _DRAWS)
    except CurveError:
        return {}
    sign = 1.0 if study.maximize else -1.0
    draws = sign * found.draws
    worst = float(np.nanmin(draws)) if np.isfinite(draws).any() else 0.0
    values = np.nan_to_num(draws, nan=worst)
    return {
        one.id: (own, values[row])
        for row, (one, own) in enumerate(zip(trials, works, strict=True))
    }
