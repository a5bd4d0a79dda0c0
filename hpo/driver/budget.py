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
    """Log the budget that the deployment gives a study that names none."""
    words = None if view.terms is None else default_budget_words(view.terms.objective)
    if words is not None:
        _log.info('study %s: %s (in hpo.optimize: budget_usd="none")', view.name, words)


def settle_budget(line: StudyClient, objective: Objective) -> None:
    """Let the larger of the run's own budget and the commanded one count.

    The caller holds the study's lease and has stated nothing yet. A smaller budget that was
    commanded has ended the run before; this one is begun to go on.
    """
    known = line.view().terms
    commanded = None if known is None else known.objective.budget_usd
    if objective.budget_usd is None or commanded is None or commanded >= objective.budget_usd:
        return
    line.set_budget(objective.budget_usd)
    own = format_money(objective.budget_usd)
    _log.info("the budget is %s again; it was %s", own, format_money(commanded))
