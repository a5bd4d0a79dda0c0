"""What passes between a trial's worker and the driver of its study.

The controller keeps it and hands it on. What the texts say is between those two alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAXIMUM_FILE_BYTES: Final = 1 << 30
WORKER_COMMAND: Final = ("python", "-P", "-m", "hpo.worker")
# A worker that finds the first forks another for each trial that it is told of on its standard
# input; the second names the file in which workers note what they have imported.
AHEAD_VARIABLE: Final = "CASTOR_AHEAD"
IMPORTS_VARIABLE: Final = "CASTOR_IMPORTS"


@dataclass(frozen=True, slots=True)
class TrialFile:
    """A file in the trial's checkpoint directory, of that name and SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TrialCall:
    """One thing that a worker tells or asks, the `number`-th of its incarnation, from 1.

    A `file` goes to the controller before the call, whose text names it to the driver. The worker
    waits for the answer of a call that `is_question`.
    """

    number: int
    text: str
    file: TrialFile | None = None
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The driver's answer to the call of that number."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call without an answer. A trial is a job; each process that holds it, an incarnation."""

    job: str
    incarnation: int
    call: TrialCall


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer, and to whom."""

    job: str
    incarnation: int
    answer: TrialAnswer


class TrialEnding(StrEnum):
    """How a trial ended: with a value, pruned, or with an error."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """The end of the trial that `job` runs; `cause` is one line, None for a trial with a value."""

    job: str
    ending: TrialEnding
    cause: str | None = None


class StudyStop(StrEnum):
    """Whether a study's driver is to end it: with the trials that run, or at once, with them."""

    NOT = "not"
    WITH_ITS_TRIALS = "with its trials"
    AT_ONCE = "at once"
