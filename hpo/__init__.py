"""Optuna studies on cloud instances: `hpo.optimize` replaces `study.optimize`.

Workers of trials import this package too. Names that only the driver of a study needs are
therefore imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hpo.methods.synchronous_halving import SynchronousHalvingPruner
from hpo.objective.distributed import distributed
from hpo.worker.epochs import epochs

if TYPE_CHECKING:
    from hpo.driver.study_end import BudgetUsedUp, DeadlineReached, NothingRan, StudyStopped
    from hpo.runs.optimize import TrialFailed, optimize
    from hpo.worker.artifacts import upload_artifact

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

# Modules of the names that are imported at their first use.
_MODULES: Final = {
    "BudgetUsedUp": "hpo.driver.study_end",
    "DeadlineReached": "hpo.driver.study_end",
    "NothingRan": "hpo.driver.study_end",
    "StudyStopped": "hpo.driver.study_end",
    "TrialFailed": "hpo.runs.optimize",
    "optimize": "hpo.runs.optimize",
    "upload_artifact": "hpo.worker.artifacts",
}


def __getattr__(name: str) -> Any:
    """Import a public name of the driver at its first use.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of this package, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
