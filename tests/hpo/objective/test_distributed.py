"""Trials on several real instances, with stand-ins for their agents, controller and driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import optuna
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import hpo
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec
from autoscaler.domain.training import TrainingDirective
from autoscaler.training import session
from hpo.driver.trial_server import TrialServer, begin_new_trial
from hpo.objective.distributed import trial_job
from hpo.objective.packaging import OBJECTIVE_FILE
from hpo.protocol.requests import answer_text, error_text, parse_request
from tests.hpo.lines import record
from tests.training.fleet import Fleet, ReplicaProcess, wait_until

WORKER = str(Path(__file__).parents[1] / "scripts" / "worker.py")
EPOCHS = 20


@hpo.distributed(instances=(1, 3), batch=32)
def objective(trial: optuna.trial.BaseTrial) -> float:
    """A network of a suggested width, whose loss after each epoch is reported."""

    torch.manual_seed(trial.number)
    rate = trial.suggest_float("rate", 0.01, 0.1, log=True)
    width = trial.suggest_int("width", 4, 8)
    inputs = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss_function = nn.MSELoss()
    pace = Path(os.environ.get("PACE", os.devnull))
    loss = float("nan")
    with session(model, optimizer, data, batch_size=32) as job:
        for epoch in job.epochs(EPOCHS):
            for batch, targets in job.batches():
                job.step(loss_function(job.model(batch), targets))
                time.sleep(float(pace.read_text() or 0))
            with torch.no_grad():
                loss = float(loss_function(model(inputs), data.tensors[1]))
            trial.report(loss, epoch + 1)
            if trial.should_prune():
                raise optuna.TrialPruned
    return loss


class Site:
    """One trial, the instances that run it, and what they say of it."""

    def __init__(self, directory: Path) -> None:
        self.study = study_of()
        self.server: TrialServer = begin_new_trial(self.study)
        self.asked: list[tuple[str, str, Any]] = []
        self.pace = directory / "pace"
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / OBJECTIVE_FILE).write_bytes(cloudpickle.dumps(objective))
        self._lock = threading.Lock()
        self.fleet = Fleet(directory)
        self.fleet.on_call = self._answer

    def start(self, ranks: int = 1) -> ReplicaProcess:
        return self.fleet.start(WORKER, ranks, **self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {"WORK": str(self.work), "PACE": str(self.pace)}

    def _answer(self, replica: str, text: str) -> str:
        call = parse_request(text)
        with self._lock:
            self.asked.append((replica, call.method, call.arguments.get("step")))
            try:
                return answer_text(self.server.answer(call))
            except Exception as error:
                return error_text(error)


def study_of() -> optuna.Study:
    return optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=3),
        pruner=optuna.pruners.SuccessiveHalvingPruner(2, reduction_factor=2),
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.fleet.stop()


def test_a_trial_that_is_resized_while_it_runs_is_what_it_is_alone(site: Site) -> None:
    expected = study_of()
    expected.optimize(objective, n_trials=1)
    site.pace.write_text("0.02")
    first = site.start()
    wait_until(
        lambda: ("r0", "should_prune", 1) in site.asked, description="an epoch of the first"
    )
    site.pace.write_text("1.0")
    second = site.start(ranks=2)
    wait_until(
        lambda: first.reports and first.reports[-1]["devices"] == 3,
        description="the second's two devices",
    )
    site.pace.write_text("0.05")
    first.direct(TrainingDirective(drain=True))
    assert first.wait(60) == 0, first.log.read_text()
    site.pace.write_text("0")
    assert second.wait(60) == 0, [log.read_text() for log in second.logs]
    assert first.of_kind("left") and second.of_kind("finished")
    found, wanted = record(site.study.trials[0]), record(expected.trials[0])
    assert found["reports"] == pytest.approx(wanted["reports"], rel=1e-5)
    assert found["values"] == pytest.approx(wanted["values"], rel=1e-5)
    for name in ("state", "params", "distributions"):
        assert found[name] == wanted[name]
    assert list(found["system_attrs"]) == list(wanted["system_attrs"])
    assert site.asked.count(("r1", "suggest", None)) == 0, "a joiner is told what was suggested"


def test_the_job_of_a_trial_is_what_the_decorator_says() -> None:
    template = JobSpec("trial", ("python",))
    job = trial_job(objective, template)
    assert (job.instances.minimum, job.instances.maximum, job.distributed) == (1, 3, True)
    assert job.batch == BatchSpec(initial=32, adaptive=False)
    within = replace(template, instances=InstanceBounds(2, 8, ("g5.xlarge",), spot=False))
    assert trial_job(objective, within).instances == InstanceBounds(
        2, 3, ("g5.xlarge",), spot=False
    )
    grows = hpo.distributed(instances=2, batch=32, adaptive=True, max_batch=64)(lambda trial: 0.0)
    job = trial_job(cloudpickle.loads(cloudpickle.dumps(grows)), template)
    assert (job.instances.minimum, job.instances.maximum) == (1, 2)
    assert job.batch == BatchSpec(32, 64, adaptive=True)
    alone = trial_job(lambda trial: 0.0, replace(template, instances=InstanceBounds(1, 8)))
    assert (alone.instances.maximum, alone.distributed) == (1, False)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"instances": 0}, "instances: 0 must be from 1 on"),
        ({"instances": (3, 2)}, r"instances: \(3, 2\) must be from 1 on, the least first"),
        ({"batch": 0}, "batch: 0 is less than 1"),
        ({"max_batch": 64}, "max_batch: goes with adaptive=True"),
        ({"adaptive": True}, "max_batch: goes with adaptive=True"),
        ({"adaptive": True, "batch": 64, "max_batch": 32}, "max_batch: 32 is less than batch=64"),
    ],
)
def test_terms_that_can_not_be_kept_are_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        hpo.distributed(**terms)


@pytest.mark.parametrize(
    ("asked", "bounds", "message"),
    [
        (objective, (4, 8), "4 to 8, and the objective runs on 1 to 3"),
        (len, (2, 4), "at least 2 for an objective that runs on one: decorate it"),
    ],
)
def test_bounds_that_the_objective_can_not_keep_are_refused(
    asked: Any, bounds: tuple[int, int], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        trial_job(asked, JobSpec("trial", (), instances=InstanceBounds(*bounds)))
