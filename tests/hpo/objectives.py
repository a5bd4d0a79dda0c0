"""Objectives whose records can be compared: what they report depends on what they are given."""

from __future__ import annotations

import optuna


def curve(trial: optuna.trial.BaseTrial) -> float:
    """Report a learning curve of twelve steps, whose end depends on three parameters."""
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    width = trial.suggest_int("width", 8, 64, step=8)
    kind = trial.suggest_categorical("kind", ["adam", "sgd", None])
    trial.set_user_attr("seen", [width, kind])
    best = 0.9 - abs(rate - 0.01) - width / 1000 - (kind is None) * 0.1
    for step in range(12):
        trial.report(best * (1 - 0.5 ** (step + 1)), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return best


def two_ends(trial: optuna.trial.BaseTrial) -> tuple[float, float]:
    value = trial.suggest_float("value", 0.0, 1.0)
    return value, 1.0 - value


def failing(trial: optuna.trial.BaseTrial) -> float:
    if trial.suggest_float("value", 0.0, 1.0) > 0.3:
        raise KeyError("no such thing")
    return float("nan") if trial.number % 2 else 1.0
