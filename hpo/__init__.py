"""Optuna studies on instances that come and go: `hpo.optimize` in place of `study.optimize`.

Workers of trials import this package too. Names that only the driver of a study needs are
therefore imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hpo.distributed import distributed
from hpo.epochs import epochs
from hpo.halving import SynchronousHalvingPruner

if TYPE_CHECKING:
    from hpo.artifacts import upload_artifact
    from hpo.endings import BudgetUsedUp, DeadlineReached, NothingRan, StudyStopped
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

# Modules of the names that are imported when first used.
_MODULES: Final = {
    "BudgetUsedUp": "hpo.endings",
    "DeadlineReached": "hpo.endings",
    "NothingRan": "hpo.endings",
    "StudyStopped": "hpo.endings",
    "TrialFailed": "hpo.running",
    "optimize": "hpo.running",
    "upload_artifact": "hpo.artifacts",
}


def __getattr__(name: str) -> Any:
    """Import a public name of the driver when it is first used.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of this package, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
