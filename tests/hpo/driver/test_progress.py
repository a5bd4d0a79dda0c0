"""Statements of a driver about its study."""

from __future__ import annotations

import optuna
import pytest
from optuna.pruners import HyperbandPruner, MedianPruner, SuccessiveHalvingPruner

from autoscaler.domain.objective import Objective
from hpo.driver.progress import ProgressReporter, progress, terms
from hpo.driver.trial_server import TrialServer
from hpo.protocol import attributes
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner

HALVING = SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)


def begun(study: optuna.Study, steps: int = 0) -> tuple[TrialServer, optuna.Trial]:
    trial = study.ask()
    for step in range(1, steps + 1):
        trial.report(1.0 / step, step)
    return TrialServer(study, trial), trial


def decided_at(pruner: optuna.pruners.BasePruner, steps: int) -> float | None:
    study = optuna.create_study(pruner=pruner)
    server, trial = begun(study, steps)
    trial.should_prune()
    return progress(study, "job", server.frozen()).decided_at


@pytest.mark.parametrize(("steps", "rung"), [(0, 2.0), (1, 2.0), (2, 6.0), (6, 18.0), (7, 18.0)])
def test_successive_halving_decides_at_its_rungs(steps: int, rung: float) -> None:
    assert decided_at(HALVING, steps) == rung


def test_hyperband_decides_at_the_rungs_of_the_bracket() -> None:
    brackets = {
        decided_at(HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=3), steps)
        for steps in (1, 4)
    }
    assert brackets <= {1.0, 3.0, 9.0}
    assert None not in brackets


@pytest.mark.parametrize(("steps", "at"), [(2, 3.0), (5, 9.0), (9, 10.0), (12, 13.0)])
def test_a_trial_that_goes_on_beyond_its_search_waits_for_nobody(steps: int, at: float) -> None:
    """Keep its instance, because it would never get another one."""
    study = optuna.create_study(pruner=SynchronousHalvingPruner(2, 3, 9))
    for _ in range(2):
        server, _ = begun(study, steps)
    stands = progress(study, "job", server.frozen())
    assert (stands.decided_at, stands.waits) == (at, False)


def test_of_other_pruners_nothing_is_stated() -> None:
    assert decided_at(MedianPruner(), 3) is None


def test_hyper_parameters_are_features() -> None:
    study = optuna.create_study()
    server, trial = begun(study)
    trial.suggest_float("lr", 0.5, 0.5)
    trial.suggest_categorical("width", [8, 8])
    trial.suggest_categorical("kind", ["sgd", "adam"])
    features = dict(progress(study, "job", server.frozen()).features)
    chosen = trial.params["kind"]
    assert features == {
        "lr": 0.5,
        "width": 8.0,
        "kind=sgd": float(chosen == "sgd"),
        "kind=adam": float(chosen == "adam"),
    }


def test_long_courses_are_thinned_and_keep_their_ends() -> None:
    study = optuna.create_study()
    server, _ = begun(study, 950)
    reports = progress(study, "job", server.frozen()).reports
    assert len(reports) <= 101
    assert (reports[0], reports[-1]) == ((1.0, 1.0), (950.0, 1.0 / 950))


def test_the_terms_tell_the_best_and_how_far_a_trial_goes() -> None:
    study = optuna.create_study(direction="maximize")
    objective = Objective(deadline_seconds=5.0)
    assert terms(study, objective, 3).full_work is None
    for value in (0.5, 0.75):
        _, trial = begun(study, 4)
        study.tell(trial, value)
    stated = terms(study, objective, None)
    assert (stated.best, stated.full_work, stated.to_begin) == (0.75, 4.0, None)
    assert stated.directions == ("maximize",)
    begun(study)[1].set_user_attr(attributes.STEPS, 9)
    assert terms(study, objective, None).full_work == 9.0


def test_what_was_heard_is_not_stated_again() -> None:
    study = optuna.create_study()
    server, trial = begun(study, 1)
    statements = ProgressReporter(study, Objective())
    changes = statements.changes({"job": server.frozen()}, 1)
    assert changes is not None
    assert [each.job for each in changes[1]] == ["job"]
    assert statements.changes({"job": server.frozen()}, 1) is not None  # it was not heard
    statements.acknowledge(*changes)
    assert statements.changes({"job": server.frozen()}, 1) is None
    study.tell(trial, 1.0)
    statements.record_end("job", server.frozen())
    changes = statements.changes({}, 0)
    assert changes is not None
    assert [each.has_ended for each in changes[1]] == [True]
    statements.acknowledge(*changes)
    assert statements.changes({}, 0) is None


def test_all_short_trials_of_a_job_are_stated_with_their_ends() -> None:
    study = optuna.create_study()
    statements = ProgressReporter(study, Objective())
    stated: list[tuple[int, float | None]] = []
    for number, value in enumerate((3.0, 1.0, 2.0)):
        server, trial = begun(study)
        study.tell(trial, value)
        statements.record_end("job", server.frozen())
        changes = statements.changes({}, 0)
        assert changes is not None
        if number == 1:
            changes = statements.changes({}, 0)  # it was not heard, and is stated again
            assert changes is not None
        current, (progressed,) = changes
        assert (current.ended, current.under_way) == (number + 1, 0)
        stated += [(result.number, result.value) for result in progressed.results]
        assert all(result.seconds is not None for result in progressed.results)
        statements.acknowledge(*changes)
        assert statements.changes({}, 0) is None
    assert stated == [(0, 3.0), (1, 1.0), (2, 2.0)]
