"""Optuna studies on instances that come and go: `hpo.optimize` in place of `study.optimize`."""

from __future__ import annotations

from hpo.running import TrialFailed, optimize

__all__ = ["TrialFailed", "optimize"]
