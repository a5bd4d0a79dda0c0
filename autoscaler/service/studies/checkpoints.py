"""The checkpoints of a study's trials, which lie where its jobs' do."""

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
    """Removes those that nobody needs."""

    def __init__(
        self, store: Store, assignments: Assignments, stored: StoredFiles | None = None
    ) -> None:
        self._store = store
        self._assignments = assignments
        self._stored = stored

    def remove(self, study: str, trials: Sequence[str]) -> int:
        """Remove what trials have left; returns of how many there was something.

        Raises:
            SpecError: that is no trial.
            ProviderError: the storage does not answer; some may be left.
        """
        for trial in trials:
            if not _TRIAL.fullmatch(trial):
                raise SpecError(f"{trial!r} is none: write trial-NUMBER-BEGIN", "trials")
        named, found = set(trials), set()
        for root, folders in self._directories(study):
            with contextlib.suppress(OSError):  # nothing there, or a link that a job has made
                names = remove_below(root, folders, lambda name: _trial_of(name) in named)
                found |= {_trial_of(name) for name in names}
        return len(found | self._removed_from_storage(study, frozenset(named)))

    def _directories(self, study: str) -> set[tuple[Path, tuple[str, ...]]]:
        """Return the directories of a study's checkpoints, each below one that no job can change.

        An absolute one was named by a person.
        """
        found = set()
        for job in self._jobs(study):
            directory, root = self._assignments.checkpoint_directory(job), self._assignments.root
            if directory.is_relative_to(root):
                found.add((root, directory.relative_to(root).parts))
            else:
                found.add((directory, ()))
        return found

    def _removed_from_storage(self, study: str, named: frozenset[str]) -> frozenset[str]:
        if self._stored is None:
            return frozenset()
        of_folder = {self._stored.depot(job): job for job in self._jobs(study)}
        removed = (self._stored.remove_of(job, named) for job in of_folder.values())
        return frozenset().union(*removed)

    def _jobs(self, study: str) -> list[JobRecord]:
        return [job for job in self._store.jobs.all() if job.spec.study == study]


def _trial_of(name: str) -> str:
    """Return the trial whose files are called so: a name ends at its first dot."""
    return name.split(".")[0]
