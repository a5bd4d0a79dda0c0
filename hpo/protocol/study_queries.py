"""Serialized parts of a study that an objective may read: trials, best trials, user attributes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState

TRIALS: Final = "trials"
BEST: Final = "best_trials"
USER_ATTRS: Final = "user_attrs"


def query_study(study: optuna.Study, part: str) -> Any:
    """Return the named part of a study, built of JSON values.

    `best_trials` holds the best trial, or the Pareto front of a study with several directions.

    Raises:
        ValueError: no trial is complete, or there is no such part.
    """
    match part:
        case "trials":
            return [_written(trial) for trial in study.get_trials(deepcopy=False)]
        case "best_trials":
            is_single = len(study.directions) == 1
            best = [study.best_trial] if is_single else study.best_trials
            return [_written(trial) for trial in best]
        case "user_attrs":
            return study.user_attrs
    raise ValueError(f"an objective can't read {part!r} of its study")


def parse_trials(written: Sequence[dict[str, Any]]) -> list[FrozenTrial]:
    """Return the trials that `query_study` has serialized."""
    return [_read(trial) for trial in written]


def _written(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "distributions": {
            name: distribution_to_json(distribution)
            for name, distribution in trial.distributions.items()
        },
        "user_attrs": trial.user_attrs,
        "reports": list(trial.intermediate_values.items()),
        "start": _text(trial.datetime_start),
        "end": _text(trial.datetime_complete),
    }


def _read(written: dict[str, Any]) -> FrozenTrial:
    return FrozenTrial(
        number=written["number"],
        trial_id=written["number"],
        state=TrialState[written["state"]],
        value=None,
        values=written["values"],
        params=written["params"],
        distributions={
            name: json_to_distribution(text) for name, text in written["distributions"].items()
        },
        user_attrs=written["user_attrs"],
        system_attrs={},
        intermediate_values=dict(written["reports"]),
        datetime_start=_time(written["start"]),
        datetime_complete=_time(written["end"]),
    )


def _text(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> datetime.datetime | None:
    return None if text is None else datetime.datetime.fromisoformat(text)
