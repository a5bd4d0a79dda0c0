"""Optuna studies on cloud instances: `hpo.optimize` replaces `study.optimize`.

Workers of trials import this package too. Names that only the driver of a study needs are
therefore imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoscaler.lazy_exports import lazy_exports
from hpo.objective.distributed import distributed
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.worker.epochs import epochs

if TYPE_CHECKING:
    from hpo.driver.study_end import BudgetUsedUp as BudgetUsedUp
    from hpo.driver.study_end import DeadlineReached as DeadlineReached
    from hpo.driver.study_end import NothingRan as NothingRan
    from hpo.driver.study_end import StudyStopped as StudyStopped
    from hpo.runs.optimize import TrialFailed as TrialFailed
    from hpo.runs.optimize import optimize as optimize
    from hpo.runs.receipts import receipts as receipts
    from hpo.worker.artifacts import upload_artifact as upload_artifact

__getattr__, __dir__, _of_driver = lazy_exports(
    __name__,
    {
        "driver.study_end": ("BudgetUsedUp", "DeadlineReached", "NothingRan", "StudyStopped"),
        "runs.optimize": ("TrialFailed", "optimize"),
        "runs.receipts": ("receipts",),
        "worker.artifacts": ("upload_artifact",),
    },
)
__all__ = ["SynchronousHalvingPruner", "distributed", "epochs", *_of_driver]
