from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.trial import TrialState
from torch import nn

from autoscaler.domain.errors import CheckpointError, SpecError
from autoscaler.objects import Objects
from hpo.driver.trial_server import begin_new_trial
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.worker.epochs import epochs
from hpo.worker.process import run_trial
from hpo.worker.trial import RemoteTrial
from tests.hpo.lines import DirectChannel, Objective, WorkerDied, records


class Here:
    """A place whose instance is to leave once `leaves_after` epochs are done."""

    def __init__(
        self,
        directory: Path,
        leaves_after: int | None = None,
        remote_checkpoints: Objects | None = None,
    ) -> None:
        self._directory = directory
        self._depot = remote_checkpoints
        self._leaves_after = leaves_after
        self.line: Any = None
        self.steps: list[int] = []
        self.has_left = False

    @property
    def must_drain(self) -> bool:
        return self._leaves_after is not None and self.steps[-1] >= self._leaves_after

    def checkpoint_directory(self) -> Path:
        return self._directory / "deep"

    def remote_checkpoints(self) -> Objects | None:
        return self._depot

    def report_steps(self, steps: int) -> None:
        self.steps.append(steps)

    def report_left(self) -> None:
        self.has_left = True

    def ask_unless_draining(self, text: str) -> str | None:
        return None if self.must_drain else self.line.ask(text)


def training(dies_at: list[int]) -> Objective:
    """A network that learns with noise, in six epochs; it dies once at each of those given."""

    def objective(trial: optuna.trial.BaseTrial) -> float:
        rate = trial.suggest_float("rate", 0.01, 0.1)
        torch.manual_seed(trial.number)
        np.random.seed(trial.number)
        random.seed(trial.number)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        counts: dict[str, Any] = {"sum": 0.0}
        state = {"model": model, "optimizer": optimizer, "counts": counts}
        loss = torch.zeros(())
        for epoch in epochs(trial, 6, state):
            if epoch in dies_at:
                dies_at.remove(epoch)
                raise WorkerDied
            inputs = torch.randn(16, 3) + np.random.normal() + random.gauss(0.0, 1.0)
            loss = (model(inputs) - 1.0).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            counts["sum"] += loss.item()
            trial.report(loss.item(), epoch)
        return counts["sum"]

    return objective


def study_of() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))


@pytest.mark.parametrize("dies_at", [[0], [1], [5], [0, 3, 5]])
def test_a_trial_that_was_killed_ends_as_one_that_was_not(
    tmp_path: Path, dies_at: list[int]
) -> None:
    expected, study = study_of(), study_of()
    expected.optimize(training([]), n_trials=1)
    server, objective = begin_new_trial(study), training(dies_at)
    for _ in range(len(dies_at)):
        with pytest.raises(WorkerDied):
            run_trial(objective, DirectChannel(server), Here(tmp_path))
    place = Here(tmp_path)
    run_trial(objective, DirectChannel(server), place)
    assert records(study) == records(expected)


def test_who_is_to_leave_does_so_after_an_epoch(tmp_path: Path) -> None:
    expected, study = study_of(), study_of()
    expected.optimize(training([]), n_trials=1)
    server = begin_new_trial(study)
    place = Here(tmp_path, leaves_after=2)
    with pytest.raises(SystemExit) as left:
        run_trial(training([]), DirectChannel(server), place)
    assert left.value.code == 0 and place.has_left and place.steps == [1, 2]
    run_trial(training([]), DirectChannel(server), Here(tmp_path))
    assert records(study) == records(expected)


@pytest.mark.parametrize("leaves", [1, 2])
@pytest.mark.parametrize("goes_on", [True, False])
def test_who_waits_for_others_leaves_and_is_judged_when_it_is_back(
    tmp_path: Path, leaves: int, goes_on: bool
) -> None:
    """However often it leaves; nothing that was trained is trained again."""
    trained: list[int] = []

    def objective(trial: optuna.trial.BaseTrial) -> float:
        rate = trial.suggest_float("rate", 0.01, 0.1)
        for epoch in epochs(trial, 6, {"counts": {}}):
            trained.append(epoch)
            trial.report(rate if goes_on else 1.0, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return rate

    study = optuna.create_study(pruner=SynchronousHalvingPruner(2, 2, 6, reduction_factor=2))
    server, other = begin_new_trial(study), study.ask()
    for _ in range(leaves):
        place = Here(tmp_path, leaves_after=2)
        place.line = DirectChannel(server)
        with pytest.raises(SystemExit):
            run_trial(objective, place.line, place)
        assert place.has_left
    other.report(0.5, 2)
    place = Here(tmp_path)
    place.line = DirectChannel(server)
    run_trial(objective, place.line, place)
    assert trained == ([0, 1, 2, 3, 4, 5] if goes_on else [0, 1, 2])
    assert study.trials[0].state is (TrialState.COMPLETE if goes_on else TrialState.PRUNED)


def test_two_trials_in_one_place_keep_apart(tmp_path: Path) -> None:
    expected, study = study_of(), study_of()
    expected.optimize(training([]), n_trials=2)
    for _ in range(2):
        run_trial(training([]), DirectChannel(begin_new_trial(study)), Here(tmp_path))
    assert records(study) == records(expected)


def test_without_a_state_or_without_castor_it_is_a_range(tmp_path: Path) -> None:
    alone = study_of().ask()
    assert list(epochs(alone, 3, {"counts": {}})) == [0, 1, 2]
    place = Here(tmp_path)
    run_trial(
        lambda trial: len(list(epochs(trial, 3))), DirectChannel(begin_new_trial(study_of()))
    )
    assert place.steps == []


def test_what_can_not_be_put_back_is_refused_at_once() -> None:
    with pytest.raises(SpecError, match=r"state\.loss: float can't be put back: give something"):
        list(epochs(study_of().ask(), 3, {"loss": 0.5}))


def test_a_state_of_another_objective_is_refused(tmp_path: Path) -> None:
    server = begin_new_trial(study_of())
    line = DirectChannel(server)

    def trial_at(place: Here) -> RemoteTrial:
        found: list[RemoteTrial] = []

        def keep(trial: optuna.trial.BaseTrial) -> float:
            assert isinstance(trial, RemoteTrial)
            found.append(trial)
            raise WorkerDied

        with pytest.raises(WorkerDied):
            run_trial(keep, line, place)
        return found[0]

    trial = trial_at(Here(tmp_path))
    loop = epochs(trial, 3, {"counts": {}})
    next(loop)
    next(loop)
    with pytest.raises(CheckpointError, match="holds no 'model': the objective has changed"):
        list(epochs(trial, 3, {"model": {}}))
    (file,) = (tmp_path / "deep").iterdir()
    file.write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match="can't be read"):
        list(epochs(trial, 3, {"counts": {}}))
