"""The directory that a job's script runs in."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import DataMount


def copy_tree(tree: Path | None, work: Path) -> None:
    """Let `work` be a clean copy of `tree`, or empty, whatever it was.

    Raises:
        OSError: the disk is full, or there is something that can't be copied.
    """
    partial = work.with_name(f"{work.name}.partial")
    for left in (partial, work):
        if left.exists():
            shutil.rmtree(left)
    if tree is None:
        partial.mkdir()
    else:
        shutil.copytree(tree, partial, symlinks=True)
    partial.rename(work)


def link_data(work: Path, mounts: Sequence[DataMount]) -> None:
    """Let each mount's target in `work` be a link to its source.

    A link can't make its source read-only: who runs the job must not be allowed to write there.

    Raises:
        SpecError: a source is not on this instance, or a target can't be made; it is named.
    """
    for number, mount in enumerate(mounts):
        source, target = Path(mount.source), work / mount.target
        field = f"data[{number}]"
        if not source.exists():
            raise SpecError(
                f"{source} is not on this instance: put it there, or correct the path",
                f"{field}.source",
            )
        if not _is_inside(target, work):
            raise SpecError(f"{mount.target} leads out of the job's tree", f"{field}.target")
        if target.is_symlink() or target.exists():
            raise SpecError(
                f"{mount.target} is in the working directory already: choose another name",
                f"{field}.target",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)


def _is_inside(target: Path, work: Path) -> bool:
    return target != work and target.parent.resolve().is_relative_to(work.resolve())
