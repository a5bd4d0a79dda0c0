"""Names of the user attributes and checkpoints of trials and studies that Castor writes."""

from __future__ import annotations

import datetime
import re
from typing import Final

PREFIX: Final = "castor:"
JOB: Final = "castor:job"
# Placeholder for the job's name between the start of a trial and the submission of its job.
NO_JOB: Final = re.compile("new-[0-9a-f]{16}")
# Jobs that ran the trial in earlier runs of the study, oldest first.
EARLIER_JOBS: Final = "castor:earlier_jobs"
JUDGING: Final = "castor:judging"
# Distributed trials: the step of the pruner's last decision, and the decision.
VERDICT: Final = "castor:verdict"
CAUSE: Final = "castor:cause"
# Trials whose job failed: how many retries there are with the next one.
RETRIED: Final = "castor:retried"
# Retries: the number of the failed trial, and the count of retries so far.
RETRY_OF: Final = "castor:retry_of"
RETRIES: Final = "castor:retries"
# Number of steps of the objective (from `hpo.epochs`); whether the trial can be paused.
STEPS: Final = "castor:steps"
PAUSES: Final = "castor:pauses"
# Uploaded files by SHA-256 and name: id in the artifact store; None while the upload is running.
ARTIFACTS: Final = "castor:artifacts"
# Studies: Castor has run the study.
DRIVEN: Final = "castor:driven"
# Studies: the name of the study at each controller, by the controller's id.
NAMES: Final = "castor:names"
# Studies: cost of each trial by its number, as `hpo.receipts` found it last.
RECEIPTS: Final = "castor:receipts"
# System attribute of Optuna, written by `optuna.terminator.report_cross_validation_scores`.
SCORES: Final = "terminator:cv_scores"


def checkpoint_name(number: int, begun: datetime.datetime | None) -> str:
    """Return the name of a trial's checkpoints, which is the same on every instance.

    The start time distinguishes trials of two studies that have the same name.
    """
    return f"trial-{number}-" + (f"{begun:%Y%m%dT%H%M%S%f}" if begun else "")
