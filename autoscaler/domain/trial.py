"""Messages between a trial's worker and the driver of its study.

The controller stores and forwards them without reading their texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAXIMUM_FILE_BYTES: Final = 1 << 30
WORKER_COMMAND: Final = ("python", "-P", "-m", "hpo.worker")
# With AHEAD_VARIABLE set, a worker forks another for each trial it reads from standard input.
# IMPORTS_VARIABLE names the file in which workers record their imports.
AHEAD_VARIABLE: Final = "CASTOR_AHEAD"
IMPORTS_VARIABLE: Final = "CASTOR_IMPORTS"


@dataclass(frozen=True, slots=True)
class TrialFile:
    """File in the trial's checkpoint directory, by name and SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TrialCall:
    """Message of a worker, the `number`-th of its incarnation, from 1.

    A `file` is uploaded to the controller before the call, whose text names it to the driver. The
    worker waits for the answer if the call `is_question`.
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
    """Call without an answer yet.

    `job` is the trial's job, and `incarnation` the process that holds the trial.
    """

    job: str
    incarnation: int
    call: TrialCall


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """Answer with its addressee: the trial's job and incarnation."""

    job: str
    incarnation: int
    answer: TrialAnswer


class TrialEnding(StrEnum):
    """Outcome of a trial: a value, pruned, or an error."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """End of the trial that `job` runs; `cause` is one line, None for a trial with a value."""

    job: str
    ending: TrialEnding
    cause: str | None = None


class StudyStop(StrEnum):
    """Stop request to a study's driver: none, after the running trials, or at once with them."""

    NOT = "not"
    WITH_ITS_TRIALS = "with its trials"
    AT_ONCE = "at once"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Request of a person that the driver of a study ends it, which it has not obeyed yet.

    `at_seconds` and `person` are None for a request that an earlier version stored.
    """

    stop: StudyStop
    at_seconds: float | None = None
    person: str | None = None
