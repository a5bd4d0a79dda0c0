"""Optuna studies on instances that come and go: `hpo.optimize` in place of `study.optimize`."""

from __future__ import annotations

from hpo.artifacts import upload_artifact
from hpo.distributed import distributed
from hpo.endings import BudgetUsedUp, DeadlineReached, NothingRan, StudyStopped
from hpo.epochs import epochs
from hpo.halving import SynchronousHalvingPruner
from hpo.running import TrialFailed, optimize

__all__ = [
    "BudgetUsedUp",
    "DeadlineReached",
    "NothingRan",
    "StudyStopped",
    "SynchronousHalvingPruner",
    "TrialFailed",
    "distributed",
    "epochs",
    "optimize",
    "upload_artifact",
]
