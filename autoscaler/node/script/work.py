"""Work directory of a job's script."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import DataMount


def clear(work: Path) -> None:
    """Delete the directory `work`, if it exists."""
    if work.exists():
        shutil.rmtree(work)


def require_sources(mounts: Sequence[DataMount]) -> None:
    """Check that the sources of all mounts exist.

    Raises:
        SpecError: a source is missing; the message names it.
    """
    for number, mount in enumerate(mounts):
        if not Path(mount.source).exists():
            raise SpecError(
                f"{mount.source} is not on this instance: put it there, or correct the path",
                f"data[{number}].source",
            )


def link_data(work: Path, mounts: Sequence[DataMount]) -> None:
    """Create a link in `work` from the target of each mount to its source.

    A link can't make its source read-only: the job's user must have no permission to write there.

    Raises:
        SpecError: a target can't be created; the message names it.
    """
    for number, mount in enumerate(mounts):
        target, field = work / mount.target, f"data[{number}].target"
        if not _is_inside(target, work):
            raise SpecError(f"{mount.target} leads out of the job's tree", field)
        if target.is_symlink() or target.exists():
            raise SpecError(
                f"{mount.target} is in the working directory already: choose another name", field
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount.source)


def _is_inside(target: Path, work: Path) -> bool:
    return target != work and target.parent.resolve().is_relative_to(work.resolve())
