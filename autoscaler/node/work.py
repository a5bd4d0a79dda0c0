"""The directory that a job's script runs in."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import DataMount


def clear(work: Path) -> None:
    """Let there be no `work`, whatever it was."""
    if work.exists():
        shutil.rmtree(work)


def require_sources(mounts: Sequence[DataMount]) -> None:
    """See that all the data is there.

    Raises:
        SpecError: some is not; it is named.
    """
    for number, mount in enumerate(mounts):
        if not Path(mount.source).exists():
            raise SpecError(
                f"{mount.source} is not on this instance: put it there, or correct the path",
                f"data[{number}].source",
            )


def link_data(work: Path, mounts: Sequence[DataMount]) -> None:
    """Let each mount's target in `work` be a link to its source.

    A link can't make its source read-only: who runs the job must not be allowed to write there.

    Raises:
        SpecError: a target can't be made; it is named.
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
