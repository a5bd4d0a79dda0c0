"""An objective on its way to the instances: what it is made of, packed."""

from __future__ import annotations

import pickle
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import optuna

from autoscaler.domain.errors import SpecError
from hpo.objective.closure import pickled

if TYPE_CHECKING:
    from autoscaler.spec.bundle import Bundle

OBJECTIVE_FILE: Final = ".castor-objective"

Objective = Callable[..., Any]


def pack_objective(
    objective: Objective,
    directory: Path | None,
    destination: Path,
    leave_out: Path | None = None,
    study: optuna.Study | None = None,
) -> Bundle:
    """Pack an objective, and the files that it needs, as a bundle.

    What it has from a module goes by the module's name, so that this must be in `directory` or
    installed on the instances; what was defined in a notebook or a script goes as it is.

    Args:
        objective: a function of a trial, or anything else that can be called with one.
        directory: where it finds its own modules and data; None for nowhere.
        destination: the archive to write.
        leave_out: a file of the directory that stays here, such as the study's own.
        study: the study that is optimized; the objective may refer to it, and to no other.

    Raises:
        SpecError: something of it can't travel, or the files are too many.
    """
    from autoscaler.spec.bundle import pack  # workers import this module and pack nothing

    if not callable(objective):
        raise SpecError(f"{objective!r} can't be called with a trial", "objective")
    with tempfile.TemporaryDirectory(prefix="castor-objective-") as scratch:
        stage = Path(scratch)
        if directory is not None:
            _copy(directory, stage, leave_out)
        (stage / OBJECTIVE_FILE).write_bytes(_pickled(objective, study))
        return pack(stage, destination)


def home_of(objective: Objective) -> Path | None:
    """The directory that an objective's module is imported from; None if that is installed.

    A function of a script or a notebook travels by itself; the modules beside it, which it may
    import, are found where the script is.
    """
    name = getattr(objective, "__module__", None) or type(objective).__module__
    module = sys.modules.get(name)
    source = getattr(module, "__file__", None)
    if source is None:
        return None
    directory = Path(source).resolve().parent
    for _ in range(name.count(".") + (Path(source).name == "__init__.py")):
        directory = directory.parent
    installed = (Path(sysconfig.get_path(part)).resolve() for part in ("purelib", "stdlib"))
    return None if any(directory.is_relative_to(each) for each in installed) else directory


def _copy(directory: Path, stage: Path, leave_out: Path | None) -> None:
    """Copy what is to travel, but for SQLite's databases that are in use.

    To open and close such a file here takes this process's locks on it away, so that others may
    throw its log away (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    from autoscaler.spec.tree import list_tree

    for file in list_tree(directory):
        if leave_out is not None and file.path.absolute() == leave_out:
            continue
        if file.name.endswith(("-wal", "-shm")) or Path(f"{file.path}-wal").exists():
            continue
        target = stage / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link is not None:
            target.symlink_to(file.link)
        else:
            shutil.copy(file.path, target)


def _pickled(objective: Objective, study: optuna.Study | None) -> bytes:
    try:
        return pickled(objective, study)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"something that it refers to can't travel to another machine ({error}): make open "
            "files, locks, connections and the like inside the objective",
            "objective",
        ) from error
