"""Checkpoints of a study's trials."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobRecord
from autoscaler.files_below import remove_below
from autoscaler.service.files.stored import StoredFiles
from autoscaler.service.instances.assignments import Assignments
from autoscaler.store.store import Store

_TRIAL = re.compile(r"trial-\d+-\d{8}T\d{12}")


class TrialCheckpoints:
    """Remover of checkpoints that are no longer needed."""

    def __init__(
        self, store: Store, assignments: Assignments, stored: StoredFiles | None = None
    ) -> None:
        self._store = store
        self._assignments = assignments
        self._stored = stored

    def remove(self, study: str, trials: Sequence[str]) -> int:
        """Remove the checkpoints of trials; return how many trials had any.

        Raises:
            SpecError: a name is no checkpoint of a trial.
            ProviderError: the storage does not respond; some files may be left.
        """
        for trial in trials:
            if not _TRIAL.fullmatch(trial):
                raise SpecError(f"{trial!r} is none: write trial-NUMBER-BEGIN", "trials")
        named, removed = set(trials), set()
        for root, folders in self._directories(study):
            with contextlib.suppress(OSError):  # a missing directory, or a link made by a job
                names = remove_below(root, folders, lambda name: _trial_of(name) in named)
                removed |= {_trial_of(name) for name in names}
        return len(removed | self._removed_from_storage(study, frozenset(named)))

    def _directories(self, study: str) -> set[tuple[Path, tuple[str, ...]]]:
        """Return the directories of a study's checkpoints, each as a root and a path below it.

        Jobs can't change the root. An absolute directory was named by a user and is its own root.
        """
        directories = set()
        for job in self._jobs(study):
            directory, root = self._assignments.checkpoint_directory(job), self._assignments.root
            if directory.is_relative_to(root):
                directories.add((root, directory.relative_to(root).parts))
            else:
                directories.add((directory, ()))
        return directories

    def _removed_from_storage(self, study: str, named: frozenset[str]) -> frozenset[str]:
        if self._stored is None:
            return frozenset()
        jobs = self._store.jobs.of_study(study)
        job_by_location = {self._stored.checkpoint_location(job): job for job in jobs}
        removed = (self._stored.remove_of(job, named) for job in job_by_location.values())
        return frozenset().union(*removed)

    def _jobs(self, study: str) -> list[JobRecord]:
        return [job for job in self._store.jobs.all() if job.spec.study == study]


def _trial_of(name: str) -> str:
    """Return the checkpoint name of a file or folder, which ends at the first dot."""
    return name.split(".")[0]
