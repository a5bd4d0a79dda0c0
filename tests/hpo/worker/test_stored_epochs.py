"""Epochs whose state is kept in storage: each instance has a disk of its own."""

from __future__ import annotations

import logging
import pickle
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects, always
from hpo.driver.trial_server import begin_new_trial
from hpo.worker.epochs import _random_states, _restore
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, WorkerDied, records
from tests.hpo.worker.test_epochs import Here, study_of, training


@pytest.fixture
def remote_checkpoints(tmp_path: Path) -> Objects:
    place = f"file://{tmp_path}/storage"
    return Objects(place, always(StorageGrant(place)))


def test_a_trial_that_was_killed_goes_on_elsewhere(
    tmp_path: Path, remote_checkpoints: Objects
) -> None:
    expected, study = study_of(), study_of()
    expected.optimize(training([]), n_trials=1)
    server, objective = begin_new_trial(study), training([2, 4])
    for number in range(2):
        with pytest.raises(WorkerDied):
            place = Here(tmp_path / str(number), remote_checkpoints=remote_checkpoints)
            run_trial(objective, DirectChannel(server), place)
    (kept,) = remote_checkpoints.listed()
    assert kept.name.startswith("trial-0-") and kept.name.endswith(".checkpoint")
    place = Here(tmp_path / "last", remote_checkpoints=remote_checkpoints)
    run_trial(objective, DirectChannel(server), place)
    assert records(study) == records(expected)
    assert place.steps == [5], "nothing is trained again but the epoch that was lost"


def test_a_state_that_was_not_kept_does_not_count(
    tmp_path: Path, remote_checkpoints: Objects
) -> None:
    server, objective = begin_new_trial(study_of()), training([2])
    with pytest.raises(WorkerDied):
        run_trial(
            objective,
            DirectChannel(server),
            Here(tmp_path / "here", remote_checkpoints=remote_checkpoints),
        )
    remote_checkpoints.remove(found.name for found in remote_checkpoints.listed())
    place = Here(tmp_path / "here", remote_checkpoints=remote_checkpoints)
    run_trial(objective, DirectChannel(server), place)
    assert place.steps == [1, 2, 3, 4, 5]


def test_between_epochs_storage_may_be_away_but_not_for_who_leaves(
    tmp_path: Path,
    remote_checkpoints: Objects,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def away(self: Objects, name: str, content: object) -> None:
        raise Unavailable(f"{self.place}/{name}: away")

    server = begin_new_trial(study_of())
    monkeypatch.setattr(Objects, "put", away)
    place = Here(tmp_path / "first", leaves_after=2, remote_checkpoints=remote_checkpoints)
    with caplog.at_level(logging.WARNING):
        run_trial(training([]), DirectChannel(server), place)
    assert place.steps == [1, 2] and not place.has_left
    assert "CheckpointError" in server.error_kinds[0]
    assert "the trial continues" in caplog.text
    monkeypatch.undo()
    server = begin_new_trial(study_of())
    place = Here(tmp_path / "second", leaves_after=1, remote_checkpoints=remote_checkpoints)
    with pytest.raises(SystemExit):
        run_trial(training([]), DirectChannel(server), place)
    assert place.has_left and len(remote_checkpoints.listed()) == 1


def test_a_start_does_not_take_silence_for_nothing(
    tmp_path: Path, remote_checkpoints: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Objects, name: str, path: Path) -> None:
        raise Unavailable(f"{self.place}/{name}: away")

    monkeypatch.setattr(Objects, "download", away)
    server, place = (
        begin_new_trial(study_of()),
        Here(tmp_path, remote_checkpoints=remote_checkpoints),
    )
    run_trial(training([]), DirectChannel(server), place)
    assert "CheckpointError" in server.error_kinds[0]
    assert place.steps == []


@dataclass(frozen=True, slots=True)
class _Saved:
    """Class of states as earlier versions had it, in the module `hpo.epochs`."""

    epochs: int
    parts: dict[str, Any]
    random_states: dict[str, Any]
    is_asking: bool = False


def test_a_state_of_an_earlier_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = types.ModuleType("hpo.epochs")
    monkeypatch.setattr(earlier, "_Saved", _Saved, raising=False)
    monkeypatch.setattr(_Saved, "__module__", "hpo.epochs")
    file = tmp_path / "state"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "hpo.epochs", earlier)
        file.write_bytes(pickle.dumps(_Saved(3, {"part": {"a": 1}}, _random_states(), True)))
    part: dict[str, int] = {}
    assert _restore(file, {"part": part}) == (3, True)
    assert part == {"a": 1}
