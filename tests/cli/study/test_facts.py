"""The facts of a study that `castor study status` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import optuna
import pytest

from autoscaler.cli.study.facts import TrialCosts, money_line, study_facts, summary
from autoscaler.cli.study.tables import trials_table
from autoscaler.cli.tables import clock_time
from autoscaler.domain.objective import Objective
from autoscaler.domain.study import StudySpec
from autoscaler.domain.terms import StudyTerms, TrialOutcome, TrialProgress, TrialRecord
from autoscaler.domain.trial import StopRequest, StudyStop, TrialEnding
from autoscaler.spec.study_file import load_study
from autoscaler.wire.study_messages import StudyView
from hpo.protocol import attributes

GOAL = Objective(budget_usd=Decimal("1.5"), deadline_seconds=2000.0)
VIEW = StudyView("s", "host-1", StudyTerms(GOAL), (), Decimal("0.25"), Decimal("3.6"))


@pytest.fixture
def spec(tmp_path: Path) -> StudySpec:
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: s\ncommand: python train.py {x}\ndirection: minimize\n"
        "space: {x: {float: [0.0, 1.0]}}\ntrials: 3\n"
    )
    return load_study(file, 0.0)[0]


def two_trials(directions: list[str]) -> optuna.Study:
    study = optuna.create_study(directions=directions)
    for value in (0.5, 0.25):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        study.tell(trial, [value] * len(directions))
    study.ask()
    return study


def test_scripts_are_told_money_best_and_driver(spec: StudySpec) -> None:
    facts = json.loads(json.dumps(study_facts(spec, two_trials(["minimize"]), VIEW)))
    assert facts["driver"] == "host-1"
    assert (facts["spent_usd"], facts["budget_usd"], facts["usd_per_hour"]) == (
        "0.25",
        "1.5",
        "3.6",
    )
    assert facts["deadline_seconds"] == 2000.0
    assert facts["counts"] == {"complete": 2, "running": 1}
    assert [(trial["number"], trial["values"]) for trial in facts["best_trials"]] == [(1, [0.25])]
    assert [trial["number"] for trial in facts["trials"]] == [0, 1, 2]


def test_what_no_controller_knows_is_null(spec: StudySpec) -> None:
    facts = study_facts(spec, two_trials(["minimize"]), None)
    unknown = (
        "driver",
        "stop",
        "spent_usd",
        "budget_usd",
        "usd_per_hour",
        "deadline_seconds",
        "trouble",
    )
    assert [facts[name] for name in unknown] == [None] * len(unknown)


def test_several_directions_have_a_pareto_front(spec: StudySpec) -> None:
    facts = study_facts(spec, two_trials(["minimize", "maximize"]), VIEW)
    assert [trial["number"] for trial in facts["best_trials"]] == [0, 1]


def test_a_study_without_a_feasible_trial_has_no_best(spec: StudySpec) -> None:
    study = optuna.create_study()
    study.add_trial(optuna.trial.create_trial(value=1.0, system_attrs={"constraints": [1.0]}))
    assert study_facts(spec, study, None)["best_trials"] == []
    assert summary(spec, study) == "s: 1 trial (1 complete)"


def test_people_are_told_in_a_line(spec: StudySpec) -> None:
    assert summary(spec, two_trials(["minimize"])).startswith(
        "s: 3 trials (2 complete, 1 running); best is 0.25, trial 1 with x="
    )
    assert money_line(VIEW) == "$0.2500 of $1.50 spent, $3.60/h now; driver: host-1"


def test_a_requested_stop_is_told_with_its_person_and_time(spec: StudySpec) -> None:
    request = StopRequest(StudyStop.WITH_ITS_TRIALS, 1_000_000.0, "ada")
    view = replace(VIEW, stop=request, trouble="late")
    assert money_line(view).splitlines()[1:] == [
        f"stopping: after its trials; requested by ada, {clock_time(1_000_000.0)}",
        "error: late",
    ]
    earlier = replace(VIEW, stop=StopRequest(StudyStop.AT_ONCE))
    assert money_line(earlier).splitlines()[1:] == ["stopping: its running trials, too"]
    facts = json.loads(json.dumps(study_facts(spec, two_trials(["minimize"]), view)))
    assert facts["stop"] == {"stop": "with its trials", "at_seconds": 1e6, "person": "ada"}


SHARED = TrialRecord(
    TrialProgress("s-0", has_ended=True),
    9.0,
    results=(
        (5.0, TrialOutcome(0, TrialEnding.COMPLETE, 0.5, 10.0)),
        (9.0, TrialOutcome(1, TrialEnding.PRUNED, None, 30.0)),
    ),
)


def ended_study(jobs: list[tuple[str, ...]]) -> optuna.Study:
    """Return a study whose trials ran in jobs, the last of each its present one."""
    study = optuna.create_study()
    for value, (*earlier, job) in enumerate(jobs):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        trial.set_user_attr(attributes.JOB, job)
        trial.set_user_attr(attributes.EARLIER_JOBS, earlier)
        study.tell(trial, float(value))
    return study


def test_short_trials_of_a_job_share_its_cost_by_their_times(spec: StudySpec) -> None:
    study = ended_study([("s-0",), ("s-0",), ("s-1", "s-2"), ("s-3",)])
    view = replace(VIEW, trials=(SHARED,))
    costs = TrialCosts.of(view, {"s-0": 4.0, "s-1": 0.5, "s-2": 0.25})
    facts = study_facts(spec, study, view, costs)["trials"]
    assert [trial["usd"] for trial in facts] == ["1.000000", "3.000000", "0.750000", None]
    assert [trial["job_usd"] for trial in facts] == [None] * 4
    assert all(trial["seconds"] is not None for trial in facts)
    table = trials_table(study, costs)
    assert [*table.columns[5].cells] == ["$1.00", "$3.00", "$0.7500", ""]
    tiny = TrialCosts.of(view, {"s-0": 4e-6, "s-1": 0.5, "s-2": 0.25})
    assert next(iter(trials_table(study, tiny).columns[5].cells)) == "< $0.0001"


def test_the_cost_of_trials_of_a_job_that_runs_is_stated_for_the_job(spec: StudySpec) -> None:
    running = replace(SHARED, stands=TrialProgress("s-0"))
    view = replace(VIEW, trials=(running,))
    study = ended_study([("s-0",), ("s-0",)])
    costs = TrialCosts.of(view, {"s-0": 4.0})
    (first, _) = study_facts(spec, study, view, costs)["trials"]
    assert (first["usd"], first["job_usd"]) == (None, "4.000000")
    assert [*trials_table(study, costs).columns[5].cells] == ["job $4.00"] * 2
    assert study_facts(spec, study, None)["trials"][0]["usd"] is None, "no controller knows it"
