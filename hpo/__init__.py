"""Optuna studies on instances that come and go: `hpo.optimize` in place of `study.optimize`."""

from __future__ import annotations

from hpo.epochs import epochs
from hpo.running import BudgetUsedUp, TrialFailed, optimize

__all__ = ["BudgetUsedUp", "TrialFailed", "epochs", "optimize"]
