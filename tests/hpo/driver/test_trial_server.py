from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.trial import FrozenTrial, Trial, TrialState

from hpo import optuna_internals
from hpo.driver.trial_server import (
    AnswerPending,
    TrialServer,
    begin_new_trial,
    find_ended_trial,
    running_trials,
)
from hpo.protocol.requests import (
    BEGIN,
    SHOULD_PRUNE,
    TrialRequest,
    answer_text,
    error_text,
    failure_request,
    parse_answer,
    parse_request,
)
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.storage.studies import is_persistent
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, Objective, WorkerDied, record, records, run_all
from tests.hpo.objectives import curve, failing, two_ends

PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=2),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(1, 12, reduction_factor=2),
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2),
    "patient": lambda: optuna.pruners.PatientPruner(
        optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=2), patience=1
    ),
    "none": optuna.pruners.NopPruner,
}


def study_of(pruner: str = "halving", storage: str | None = None) -> optuna.Study:
    return optuna.create_study(
        storage=storage,
        study_name="sweep",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=3),
        pruner=PRUNERS[pruner](),
    )


@pytest.mark.parametrize("pruner", PRUNERS)
def test_a_study_over_the_line_has_the_records_of_one_without(pruner: str) -> None:
    here, there = study_of(pruner), study_of(pruner)
    here.optimize(curve, n_trials=25)
    run_all(there, curve, 25)
    assert records(there) == records(here)
    if pruner not in ("none", "patient"):
        assert TrialState.PRUNED in {trial.state for trial in there.trials}


@pytest.mark.parametrize("objective", [failing, two_ends])
def test_ends_are_told_as_optuna_tells_them(objective: Objective) -> None:
    directions = ["minimize"] * (2 if objective is two_ends else 1)
    here, there = (
        optuna.create_study(directions=directions, sampler=optuna.samplers.RandomSampler(seed=1))
        for _ in range(2)
    )
    here.optimize(objective, n_trials=12, catch=KeyError)
    run_all(there, objective, 12)
    assert records(there) == records(here)


@pytest.mark.parametrize("pruner", ["halving", "hyperband", "median"])
def test_killed_anywhere_a_trial_goes_on_as_if_it_had_not_been(pruner: str) -> None:
    """Worker and driver die together after each number of calls; the next ones take it up."""
    expected = study_of(pruner)
    run_all(expected, curve, 5)
    for calls in itertools.count():
        shaken = study_of(pruner)
        if not _killed_after(calls, shaken):
            break
        assert records(shaken) == records(expected)
    assert calls > 5


def test_so_it_is_where_the_storage_is_a_database(tmp_path: Path) -> None:
    expected = study_of()
    run_all(expected, curve, 5)
    shaken = study_of(storage=f"sqlite:///{tmp_path}/sweep.db")
    assert _killed_after(8, shaken)
    assert records(shaken) == records(expected)


def _killed_after(calls: int, study: optuna.Study) -> bool:
    """Run five trials, of which the last is killed after so many calls; False if it is not."""
    run_all(study, curve, 4)
    server = begin_new_trial(study)
    server.bind("sweep-4")
    try:
        run_trial(curve, DirectChannel(server, calls))
    except WorkerDied:
        run_trial(curve, DirectChannel(running_trials(study)["sweep-4"]))
        return True
    return False


@pytest.mark.parametrize("pruner", ["halving", "hyperband", "patient"])
def test_a_driver_that_dies_as_it_judges_judges_once(pruner: str) -> None:
    """Undo the pruner's writes before it is asked again."""
    expected, shaken = study_of(pruner), study_of(pruner)
    for study in (expected, shaken):
        run_all(study, curve, 6)
    pruners_own = shaken.pruner.prune
    judged = 0

    def dies_having_judged(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        nonlocal judged
        verdict = pruners_own(study, trial)
        judged += 1
        if judged % 2 == 1:
            raise WorkerDied
        return verdict

    shaken.pruner.prune = dies_having_judged  # type: ignore[method-assign]
    server = begin_new_trial(shaken)
    server.bind("job")
    while server is not None:
        try:
            run_trial(curve, DirectChannel(server))
        except WorkerDied:
            server = running_trials(shaken)["job"]
            continue
        break
    run_all(expected, curve, 1)
    assert records(shaken) == records(expected)


def test_each_step_is_judged_once_however_often_it_is_asked() -> None:
    study = study_of()
    server = begin_new_trial(study)
    asked: list[int | None] = []
    study.pruner.prune = lambda study, trial: bool(  # type: ignore[method-assign]
        asked.append(trial.last_step)
    )
    for step in (0, 0, 1, 1, 1):
        server.answer(TrialRequest("report", {"value": 1.0, "step": step}))
        assert server.answer(TrialRequest("should_prune", {})) is False
    assert asked == [0, 1]


@pytest.mark.parametrize("pruner", ["median", "halving"])
def test_a_step_that_several_ask_of_has_one_verdict_whoever_dies(pruner: str) -> None:
    study = study_of(pruner)
    server = begin_new_trial(study)
    server.bind("job")
    asked: list[int | None] = []
    verdicts = iter([False, True])

    def prune(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        asked.append(trial.last_step)
        return next(verdicts)

    study.pruner.prune = prune  # type: ignore[method-assign]

    def ask(step: int) -> bool:
        """Each of two instances reports and asks, of two drivers the second having just begun."""
        answers = []
        for held in (server, running_trials(study)["job"]):
            held.answer(TrialRequest("report", {"value": 1.0, "step": step}))
            answers.append(held.answer(TrialRequest("should_prune", {"step": step})))
        assert answers[0] == answers[1]
        return bool(answers[0])

    assert (ask(1), ask(2)) == (False, True)
    assert asked == [1, 2]
    assert server.answer(TrialRequest("should_prune", {"step": 1})) is False, "it has gone on"


def test_instances_of_a_trial_that_waits_for_others_hear_alike() -> None:
    study = optuna.create_study(pruner=SynchronousHalvingPruner(2, 1, 3, reduction_factor=2))
    trials = [begin_new_trial(study), begin_new_trial(study)]
    for value, trial in enumerate(trials):
        for _ in range(2):
            trial.answer(TrialRequest("report", {"value": float(value), "step": 1}))
            if trial is trials[0]:
                with pytest.raises(AnswerPending):
                    trial.answer(TrialRequest("should_prune", {"step": 1}))
    asked = [TrialRequest("should_prune", {"step": 1})] * 2
    assert [trials[0].answer(each) for each in asked] == [False, False]
    assert [trials[1].answer(each) for each in asked] == [True, True]


def test_the_first_end_of_a_trial_counts_and_the_others_hear_of_it() -> None:
    study = study_of()
    server = begin_new_trial(study)
    server.bind("job")
    assert find_ended_trial(study, "job") is None
    server.answer(TrialRequest("report", {"value": 1.0, "step": 1}))
    server.answer(TrialRequest("end", {"state": "PRUNED"}))
    late = find_ended_trial(study, "job")
    assert late is not None
    assert late.answer(TrialRequest("should_prune", {"step": 1})) is True
    assert late.answer(TrialRequest("begin", {}))["is_finished"]
    late.answer(failure_request("out of memory", MemoryError()))
    late.answer(TrialRequest("end", {"state": "COMPLETE", "values": [1.0], "cause": None}))
    assert late.error_kinds == ()
    (trial,) = study.trials
    assert trial.state is TrialState.PRUNED and "castor:cause" not in trial.user_attrs


@pytest.mark.parametrize(
    "wanted", ["trial._storage", "trial.storage.get_trial", "trial.study.storage"]
)
def test_who_looks_for_the_storage_is_told_what_to_do(wanted: str) -> None:
    study = study_of()

    def objective(trial: optuna.trial.BaseTrial) -> float:
        held: object = trial
        for name in wanted.split(".")[1:]:
            held = getattr(held, name)
        return 0.0

    run_trial(objective, DirectChannel(begin_new_trial(study)))
    cause = study.trials[0].user_attrs["castor:cause"]
    assert "call trial.report and trial.should_prune, on every rank" in cause


def test_a_restored_worker_reports_again_and_nothing_changes() -> None:
    study = study_of("median")
    trial = study.ask()
    server = TrialServer(study, trial)
    for step in (0, 1, 2, 1, 2, 3):
        server.answer(TrialRequest("report", {"value": float(step), "step": step}))
        server.answer(TrialRequest("should_prune", {}))
    assert study.trials[0].intermediate_values == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}


def test_a_parameter_of_another_range_is_refused_as_optuna_refuses_it() -> None:
    study = study_of()
    server = begin_new_trial(study)
    line = DirectChannel(server)

    def first(trial: optuna.trial.BaseTrial) -> float:
        trial.suggest_categorical("kind", ["a", "b"])
        raise WorkerDied

    def second(trial: optuna.trial.BaseTrial) -> float:
        trial.suggest_categorical("kind", ["a", "c"])
        return 1.0

    with pytest.raises(WorkerDied):
        run_trial(first, line)
    run_trial(second, line)
    assert study.trials[0].state is TrialState.FAIL
    cause = study.trials[0].user_attrs["castor:cause"]
    assert cause.startswith("ValueError: CategoricalDistribution does not support dynamic")


def test_a_study_in_memory_does_not_last(tmp_path: Path) -> None:
    assert not is_persistent(study_of())
    assert is_persistent(study_of(storage=f"sqlite:///{tmp_path}/study.db"))


def test_only_trials_that_castor_began_are_taken_up() -> None:
    study = study_of()
    study.ask()
    begin_new_trial(study).bind("sweep-1")
    assert set(running_trials(study)) == {"sweep-1"}


def test_a_trial_that_is_over_is_not_run_again() -> None:
    study = study_of()
    server = begin_new_trial(study)
    server.answer(TrialRequest("end", {"state": "COMPLETE", "values": [0.5]}))
    before = record(study.trials[0])
    run_trial(lambda trial: pytest.fail("it ran"), DirectChannel(server))
    server.answer(TrialRequest("end", {"state": "COMPLETE", "values": [0.7]}))
    server.fail("too late")
    assert record(study.trials[0]) == before


def test_what_a_trial_knows_of_its_study() -> None:
    study = study_of()

    def look(trial: optuna.trial.BaseTrial) -> float:
        assert trial.study.direction is optuna.study.StudyDirection.MAXIMIZE  # type: ignore[attr-defined]
        assert trial.study.study_name == "sweep"  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"study\.sampler: .* use a callback"):
            _ = trial.study.sampler  # type: ignore[attr-defined]
        assert trial.number == 0 and trial.datetime_start is not None
        if hasattr(optuna.trial.Trial, "set_constraint"):  # from 5.0 on
            trial.set_constraint("memory", -1.0)
        return 1.0

    run_all(study, look, 1)
    assert study.trials[0].state is TrialState.COMPLETE


def test_reports_of_several_objectives_are_refused() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])

    def reports(trial: optuna.trial.BaseTrial) -> tuple[float, float]:
        with pytest.raises(NotImplementedError):
            trial.should_prune()
        trial.report(1.0, 0)
        return 1.0, 1.0

    run_all(study, reports, 1)
    assert study.trials[0].state is TrialState.FAIL


@pytest.mark.parametrize("value", [None, True, 1.5, float("inf"), "text", [1, {"a": None}]])
def test_values_travel(value: object) -> None:
    assert parse_answer(answer_text(value)) == value
    assert parse_request(TrialRequest("m", {"value": value}).text()) == TrialRequest(
        "m", {"value": value}
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), ValueError),
        (optuna.exceptions.TrialPruned("no"), optuna.exceptions.TrialPruned),
        (type("Own", (Exception,), {})("no"), RuntimeError),
    ],
)
def test_errors_travel(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="no"):
        parse_answer(error_text(error))


def test_attaching_is_what_optuna_lets_one_do() -> None:
    """The constructor is documented as not recommended: this is what we need of it."""
    study = study_of()
    trial = study.ask()
    value = trial.suggest_float("x", 0.0, 1.0)
    again = Trial(study, trial._trial_id)
    assert again.suggest_float("x", 0.0, 1.0) == value
    again.report(0.5, 3)
    study.tell(again, 1.0)
    assert study.trials[0].values == [1.0]
    assert study.trials[0].intermediate_values == {3: 0.5}


@pytest.mark.parametrize(("pruner", "asks"), [("none", False), ("median", True)])
def test_only_a_pruner_that_may_say_yes_is_asked(pruner: str, asks: bool) -> None:
    asked: list[str] = []

    class NotingLine(DirectChannel):
        def ask(self, text: str) -> str:
            asked.append(parse_request(text).method)
            return super().ask(text)

    study = study_of(pruner)
    run_trial(curve, NotingLine(begin_new_trial(study)))
    assert study.trials[0].state is TrialState.COMPLETE
    assert (SHOULD_PRUNE in asked) == asks


def test_several_directions_are_refused_by_optuna_s_own_words() -> None:
    study = optuna.create_study(directions=["minimize"] * 2, pruner=optuna.pruners.NopPruner())
    server = begin_new_trial(study)
    assert not server.answer(TrialRequest(BEGIN, {}))["never_prunes"]


def test_what_is_known_of_a_trial_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
    server = begin_new_trial(study)
    reads: list[int] = []
    read = optuna_internals.frozen_trial

    def counted(study: optuna.Study, trial: Trial) -> FrozenTrial:
        reads.append(trial.number)
        return read(study, trial)

    monkeypatch.setattr(optuna_internals, "frozen_trial", counted)
    distribution = distribution_to_json(FloatDistribution(0.0, 1.0))
    for number in range(3):
        server.answer(
            TrialRequest("suggest", {"name": f"x{number}", "distribution": distribution})
        )
        server.answer(TrialRequest("report", {"value": 1.0, "step": number}))
        server.answer(TrialRequest("report", {"value": 2.0, "step": number}))
        server.answer(TrialRequest("should_prune", {}))
    assert len(reads) == 1
    assert set(study.trials[0].intermediate_values.values()) == {1.0}
