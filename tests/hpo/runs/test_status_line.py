from __future__ import annotations

import io
import sys
import threading
from dataclasses import replace
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import optuna
import pytest
from tqdm.auto import tqdm

from autoscaler.clock import VirtualClock
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.wire.study_messages import StudyView
from hpo.driver.trial_server import begin_new_trial
from hpo.runs import status_line as status_line_module
from hpo.runs.status_line import count_trials_to_end, status_line, status_text


def view(terms: StudyTerms | None) -> StudyView:
    trained = Allocation("small", 1, 1)
    trials = (
        TrialRecord(TrialProgress("s-0", has_ended=True), 0.0, trained),
        TrialRecord(TrialProgress("s-1"), 0.0, trained),
        TrialRecord(TrialProgress("s-2"), 0.0, None),
    )
    return StudyView("s", None, terms, trials, Decimal("0.02"), Decimal("0.09"))


def test_the_words_beside_the_bar() -> None:
    assert status_text(view(None), 0.0) == "2 run on 1 x small, $0.02 ($0.09/h)"
    objective = Objective(deadline_seconds=720.0, budget_usd=Decimal(1))
    terms = StudyTerms(objective, best=0.9805555)
    words = "best 0.980556, 2 run on 1 x small, $0.02 of $1 ($0.09/h), "
    assert status_text(view(terms), 0.0) == f"{words}12m left"
    assert status_text(view(terms), 780.0) == f"{words}1m late"


def test_trouble_is_told_and_what_is_not_known_is_not_made_up() -> None:
    troubled = replace(view(None), spent_usd=None, trouble="the ledger is broken")
    words = status_text(troubled, 0.0)
    assert words == "2 run on 1 x small, ? ($0.09/h), trouble: the ledger is broken"


def test_a_notebook_shows_the_words_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    updated = threading.Event()

    def update(content: Any) -> None:
        shown.append(content._repr_html_())
        updated.set()

    def display(content: Any, display_id: bool) -> SimpleNamespace:
        shown.append(content._repr_html_())
        return SimpleNamespace(update=update)

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(status_line_module, "REFRESH_SECONDS", 0.01)
    closed = threading.Event()
    client: Any = SimpleNamespace(view=lambda: view(None), close=closed.set)
    with tqdm(file=io.StringIO()) as bar, status_line(bar, client, VirtualClock()):
        assert updated.wait(30)
    assert shown[0] == shown[1] == "<b>s</b>: 2 run on 1 x small, $0.02 ($0.09/h)"
    assert closed.is_set()


def test_a_bar_counts_those_that_were_left_open() -> None:
    study = optuna.create_study()
    study.ask()  # somebody else's
    begin_new_trial(study).bind("s-1")
    study.tell(study.ask(), 1.0)
    assert count_trials_to_end(study, 6) == 7
    assert count_trials_to_end(study, None) is None
