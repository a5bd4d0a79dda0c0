"""Packaging of an objective and its files into a bundle for instances."""

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
from hpo.objective.closure import pickle_objective

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
    """Pack an objective and the files that it needs into a bundle.

    Objects from modules are pickled by reference, so the modules must be in `directory` or
    installed on the instances. Definitions of a notebook or script are pickled by value.

    Args:
        objective: a function of a trial, or another callable.
        directory: root of the objective's own modules and data; None for no files.
        destination: path of the archive.
        leave_out: a file of the directory to skip, such as the study's database.
        study: the optimized study; the objective may refer to it and to no other study.

    Raises:
        SpecError: the objective can't be pickled, or there are too many files.
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


def import_root(objective: Objective) -> Path | None:
    """Return the directory that an objective's module is imported from.

    The result is None if it is installed.

    For a script or notebook this is the directory of the script, where the modules that it imports
    are.
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
    return None if any(directory.is_relative_to(root) for root in installed) else directory


def _copy(directory: Path, stage: Path, leave_out: Path | None) -> None:
    """Copy the files of a directory, without SQLite databases that are in use.

    Opening and closing such a file would release this process's locks on it
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    from autoscaler.spec.working_directory import list_tree

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
        return pickle_objective(objective, study)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"something that it refers to can't travel to another machine ({error}): make open "
            "files, locks, connections and the like inside the objective",
            "objective",
        ) from error
