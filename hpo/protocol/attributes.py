"""The attributes of trials that Castor writes, by name; whoever reads the study may see them."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "castor:"
JOB: Final = "castor:job"
# A job's name that a trial has from its start until its job is submitted.
NO_JOB: Final = re.compile("new-[0-9a-f]{16}")
# The jobs that ran the trial in earlier runs of the study, the first one first.
EARLIER_JOBS: Final = "castor:earlier_jobs"
JUDGING: Final = "castor:judging"
# Of a distributed trial: the step that was judged last, and how.
VERDICT: Final = "castor:verdict"
CAUSE: Final = "castor:cause"
# Of a trial whose job failed: the number of the retry that takes its place.
RETRIED: Final = "castor:retried"
# Of a retry: the number of the trial whose place it takes, and how many retries there were.
RETRY_OF: Final = "castor:retry_of"
RETRIES: Final = "castor:retries"
# How many steps its objective takes, as `hpo.epochs` knows; whether it can go on where it was.
STEPS: Final = "castor:steps"
PAUSES: Final = "castor:pauses"
# What was uploaded, by SHA-256 and name: its id in the artifact store, None while it is put there.
ARTIFACTS: Final = "castor:artifacts"
# Of a study: Castor has run it.
DRIVEN: Final = "castor:driven"
# Of a study: what controllers call it, by their ids.
NAMES: Final = "castor:names"
# Optuna's own, a system attribute: what `optuna.terminator.report_cross_validation_scores` writes.
SCORES: Final = "terminator:cv_scores"
