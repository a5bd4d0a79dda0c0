from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import optuna

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.wire.study_messages import StudyView
from hpo.driver.trial_server import new_attachment
from hpo.runs.status_line import standing_words, trials_to_come


def view(terms: StudyTerms | None) -> StudyView:
    trained = Allocation("small", 1, 1)
    trials = (
        TrialRecord(TrialProgress("s-0", has_ended=True), 0.0, trained),
        TrialRecord(TrialProgress("s-1"), 0.0, trained),
        TrialRecord(TrialProgress("s-2"), 0.0, None),
    )
    return StudyView("s", None, terms, trials, Decimal("0.02"), Decimal("0.09"))


def test_the_words_beside_the_bar() -> None:
    assert standing_words(view(None), 0.0) == "2 run on 1 x small, $0.02 ($0.09/h)"
    objective = Objective(deadline_seconds=720.0, budget_usd=Decimal(1))
    terms = StudyTerms(objective, best=0.9805555)
    words = "best 0.980556, 2 run on 1 x small, $0.02 of $1 ($0.09/h), "
    assert standing_words(view(terms), 0.0) == f"{words}12m left"
    assert standing_words(view(terms), 780.0) == f"{words}1m late"


def test_trouble_is_told_and_what_is_not_known_is_not_made_up() -> None:
    troubled = replace(view(None), spent_usd=None, trouble="the ledger is broken")
    words = standing_words(troubled, 0.0)
    assert words == "2 run on 1 x small, ? ($0.09/h), trouble: the ledger is broken"


def test_a_bar_counts_those_that_were_left_open() -> None:
    study = optuna.create_study()
    study.ask()  # somebody else's
    new_attachment(study).bind("s-1")
    study.tell(study.ask(), 1.0)
    assert trials_to_come(study, 6) == 7
    assert trials_to_come(study, None) is None
