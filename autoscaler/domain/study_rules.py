"""Rules for studies: what every way in checks, whether a file or a request.

Fields are called as study files call them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job_rules import (
    MOST_INSTANCES,
    MOST_RETRIES,
    require_valid_job,
    require_valid_objective,
)
from autoscaler.domain.rules import (
    require_at_most,
    require_count,
    require_line,
    require_positive,
)
from autoscaler.domain.study import StudySpec

MOST_TRIALS: Final = 1_000_000
LONGEST_STUDY_SECONDS: Final = 1e9
_MOST_PARAMETERS: Final = 1_000
_MOST_DIRECTIONS: Final = 10


def require_valid_study(study: StudySpec) -> None:
    """Check all that a study's file says.

    Raises:
        SpecError: a value can't be used; its `field` is the key of the study file.
    """
    require_line(study.name, "name")
    require_valid_objective(study.objective)
    if study.trials is not None:
        require_count(study.trials, "trials", MOST_TRIALS)
    if study.at_once is not None:
        require_count(study.at_once, "at_once", MOST_INSTANCES)
    if study.timeout_seconds is not None:
        require_positive(study.timeout_seconds, "timeout", LONGEST_STUDY_SECONDS)
    require_count(study.retries, "retries", MOST_RETRIES, least=0)
    require_at_most(len(study.space), "space", _MOST_PARAMETERS)
    require_at_most(len(study.directions), "direction", _MOST_DIRECTIONS)
    try:
        require_valid_job(replace(study.job, study=None))
    except SpecError as error:
        raise SpecError(error.message, f"job.{error.field}") from None
