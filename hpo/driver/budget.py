"""Budget of a study: default and commanded amounts."""

from __future__ import annotations

import logging

from autoscaler.domain.objective import Objective
from autoscaler.spec.objective_text import default_budget_words
from autoscaler.spec.quantities import format_money
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyView

_log = logging.getLogger(__name__)


def log_default_budget(view: StudyView) -> None:
    """Log the deployment's default budget if it applies to the study."""
    words = None if view.terms is None else default_budget_words(view.terms.objective)
    if words is not None:
        _log.info('study %s: %s (in hpo.optimize: budget_usd="none")', view.name, words)


def restore_run_budget(study_client: StudyClient, objective: Objective) -> None:
    """Set the study's budget to that of the run if the commanded budget is smaller.

    Call this with the study's lease, before the first report. A smaller commanded budget has ended
    the previous run; this run is meant to continue.
    """
    terms = study_client.view().terms
    commanded = None if terms is None else terms.objective.budget_usd
    if objective.budget_usd is None or commanded is None or commanded >= objective.budget_usd:
        return
    study_client.set_budget(objective.budget_usd)
    budget_text = format_money(objective.budget_usd)
    _log.info("the budget is %s again; it was %s", budget_text, format_money(commanded))
