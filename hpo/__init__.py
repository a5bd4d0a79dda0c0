"""Optuna studies on instances that come and go: `hpo.optimize` in place of `study.optimize`.

What runs beside a study is imported as it is first used: the worker of a trial needs none of it,
and each trial would wait for the imports.
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
    """Return a public name whose module is not imported yet.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
