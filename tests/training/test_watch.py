"""Sessions whose end others tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.clock import VirtualClock
from autoscaler.domain.training import TrainingDirective
from autoscaler.training import TrainingSession, session
from autoscaler.training.watch import watched
from tests.training.alone import RecordingConnection, script, under_castor

EPOCHS = 4


def parts() -> tuple[nn.Module, torch.optim.Optimizer, TensorDataset]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-5), TensorDataset(torch.ones(64, 3))


def train(
    job: TrainingSession, told: list[int], channel: RecordingConnection, leaves_at: int
) -> None:
    """Tell of each epoch after it. In one step the agent says to leave: that ends the next."""
    step = 0
    for epoch in job.epochs(EPOCHS):
        for (inputs,) in job.batches():
            if step == leaves_at:
                channel._directive = TrainingDirective(drain=True)
            job.step(job.model(inputs).mean())
            step += 1
        told.append(epoch)


@pytest.mark.parametrize(
    ("leaves_at", "told_before"), [(1, 0), (2, 1), (3, 1), (14, EPOCHS), (15, EPOCHS)]
)
def test_who_leaves_has_told_of_the_epochs_that_are_done(
    tmp_path: Path, leaves_at: int, told_before: int
) -> None:
    told: list[int] = []
    with watched("trial-0"):
        job, _, channel = under_castor(tmp_path, script(*parts()), VirtualClock())
        try:
            train(job, told, channel, leaves_at)
        except SystemExit:
            assert channel.said[-1] == "left"
            assert told == list(range(told_before))
            job, _, channel = under_castor(tmp_path, script(*parts()), VirtualClock())
            train(job, told, channel, -1)
        else:
            assert told_before == EPOCHS, "who has come to the end need not leave"
        job.finish()
    assert told == list(range(EPOCHS)), "each epoch once, wherever it left"
    assert not {"finished", "done"} & set(channel.said), "that is for others to say"


def test_no_state_is_kept_in_which_something_is_still_to_be_told(tmp_path: Path) -> None:
    told: list[int] = []
    with watched("trial-0"):
        job, its_parts, _ = under_castor(tmp_path, script(*parts()), VirtualClock())
        checkpoints, counters = its_parts.checkpoints, its_parts.state.counters
        assert checkpoints is not None
        its_parts.checkpoint_interval_seconds = 0.0
        for epoch in job.epochs(2):
            for (inputs,) in job.batches():
                job.step(job.model(inputs).mean())
            checkpoints.wait()
            assert (checkpoints.status.step or 0) < counters.step
            told.append(epoch)
        job.finish()
    checkpoints.wait()
    assert checkpoints.status.step is not None
    assert checkpoints.status.step < counters.step == 8
    again, _, _ = under_castor(tmp_path, script(*parts()), VirtualClock())
    assert next(again.epochs(2)) == 1, "what is told of the last epoch is told again"


def test_an_objective_has_one_session_and_what_it_raises_is_its_own(tmp_path: Path) -> None:
    model, optimizer, data = parts()
    with watched("trial-0") as watch:
        counted: list[int] = []
        watch.on_epochs = counted.append
        with (
            pytest.raises(KeyError),
            session(model, optimizer, data, batch_size=16) as job,
        ):
            assert watch.session is job
            next(job.epochs(EPOCHS))
            raise KeyError("its own")
        with (
            pytest.raises(RuntimeError, match="an objective has one session"),
            session(model, optimizer, data, batch_size=16),
        ):
            pass
        assert counted == [EPOCHS]
