from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.checkpoint import name_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.training.state import checkpoint_files, checkpoint_reading, checkpoint_writing
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.own_state import ScriptState
from autoscaler.training.state.training_state import Counters, TrainingState

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _state(seed: int = 0, width: int = 3, own: dict[str, Any] | None = None) -> TrainingState:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(3):
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
    counters = Counters(step=3, batch_total=8)
    return TrainingState(model, optimizer, scheduler, counters, own=ScriptState(own))


def _checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(directory, kept=2, clock=SystemClock())


def _save(state: TrainingState, checkpoints: Checkpoints, step: int) -> None:
    state.counters.step = step
    state.save(checkpoints, at_once=True)


def test_what_is_saved_comes_back_whole(tmp_path: Path) -> None:
    saved, fresh = _state(), _state(seed=1)
    saved.counters.noise.samples = 7.0
    saved.counters.progress_examples = 99.5
    _save(saved, _checkpoints(tmp_path), 12)
    later = _checkpoints(tmp_path)
    path = later.newest()
    assert path is not None
    fresh.restore(later, path)
    assert fresh.counters == saved.counters
    for name in ("model", "optimizer"):
        left, right = saved.state_dict()[name], fresh.state_dict()[name]
        flat = torch.utils._pytree.tree_leaves
        for one, other in zip(flat(left), flat(right), strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_checkpoint_of_earlier_versions_is_read(tmp_path: Path) -> None:
    """Check with the calls and the manifest of versions in which the leader wrote all tensors."""
    saved, fresh = _state(), _state(seed=1)
    path = tmp_path / name_of(3)
    model, optimizer = saved._tensors()
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=path, no_dist=True)
    rest = saved._plain_values()
    del rest["own"]
    torch.save(rest, path / "rest.pt")
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}
    manifest = {"format": 1, "step": 3, "torch": "2.9.0", "sha256": digests}
    (path / "manifest.json").write_text(json.dumps(manifest, indent=1))
    assert fresh.restore_newest(_checkpoints(tmp_path))
    assert fresh.counters == saved.counters
    for name, tensor in saved.state_dict()["model"].items():
        assert torch.equal(fresh.state_dict()["model"][name], tensor)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints, state = _checkpoints(tmp_path), _state()
    for step in (1, 2, 3, 4):
        _save(state, checkpoints, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-000000000003",
        "step-000000000004",
    ]
    assert checkpoints.status.step == 4


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_corrupt_checkpoint_is_set_aside_and_the_one_before_is_read(
    tmp_path: Path, damage: str
) -> None:
    checkpoints, state = _checkpoints(tmp_path), _state()
    for step in (1, 2):
        _save(state, checkpoints, step)
    newest = tmp_path / "step-000000000002"
    victim = newest / ("manifest.json" if damage == "manifest" else "__0_0.distcp")
    if damage == "flip":
        content = bytearray(victim.read_bytes())
        content[100] ^= 1
        victim.write_bytes(content)
    elif damage == "remove":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:50])
    found = _checkpoints(tmp_path).newest()
    assert found == tmp_path / "step-000000000001"
    assert (tmp_path / "step-000000000002.corrupt").is_dir(), "nothing is deleted"


def test_when_none_is_whole_that_is_said_and_nothing_is_overwritten(tmp_path: Path) -> None:
    _save(_state(), _checkpoints(tmp_path), 1)
    (tmp_path / "step-000000000001" / "rest.pt").unlink()
    with pytest.raises(CheckpointError, match=r"\*\.corrupt.*start from the beginning"):
        _checkpoints(tmp_path).newest()


def test_one_of_a_newer_format_is_refused_not_set_aside(tmp_path: Path) -> None:
    _save(_state(), _checkpoints(tmp_path), 1)
    manifest = tmp_path / "step-000000000001" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match='format "99"'):
        _checkpoints(tmp_path).newest()
    assert manifest.exists()


def test_another_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    _save(_state(), _checkpoints(tmp_path), 1)
    checkpoints = _checkpoints(tmp_path)
    path = checkpoints.newest()
    assert path is not None
    with pytest.raises(CheckpointError, match="does not go with this model"):
        _state(width=5).restore(checkpoints, path)


def test_a_full_disk_costs_the_checkpoint_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    checkpoints, state = _checkpoints(tmp_path), _state()
    _save(state, checkpoints, 1)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_writing, "_seal", full)
    _save(state, checkpoints, 2)
    assert checkpoints.status.step == 1
    error = checkpoints.status.error or ""
    assert "step 2" in error and "No space left on device" in error and str(tmp_path) in error
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001"]
    monkeypatch.undo()
    _save(state, checkpoints, 3)
    assert (checkpoints.status.step, checkpoints.status.error) == (3, None)


def test_a_half_written_one_is_never_seen(tmp_path: Path) -> None:
    partial = tmp_path / ".step-000000000009.123.partial"
    partial.mkdir()
    assert _checkpoints(tmp_path).newest() is None


def test_training_may_move_on_while_it_is_written(tmp_path: Path) -> None:
    checkpoints, state = _checkpoints(tmp_path), _state()
    before = state.state_dict()["model"]["0.weight"].clone()
    state.save(checkpoints, at_once=False)
    with torch.no_grad():
        state.state_dict()["model"]["0.weight"].add_(1.0)
    checkpoints.wait()
    path = checkpoints.newest()
    assert path is not None
    fresh = _state(seed=1)
    fresh.restore(checkpoints, path)
    assert torch.equal(fresh.state_dict()["model"]["0.weight"], before)


def test_a_checkpoint_before_the_first_step_changes_nothing(tmp_path: Path) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        return next(model.parameters()).detach()

    def fresh(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Linear(4, 1)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    checkpoints = Checkpoints(tmp_path, 1, SystemClock())
    writer, reader = fresh(0), fresh(1)
    TrainingState(*writer, None, Counters()).save(checkpoints, at_once=True)
    path = checkpoints.newest()
    assert path is not None
    TrainingState(*reader, None, Counters()).restore(checkpoints, path)
    plain = step(*fresh(0))
    assert torch.equal(step(*writer), plain)
    assert torch.equal(step(*reader), plain)


def _with_a_late_part(
    optimizer: type[torch.optim.Optimizer],
) -> tuple[nn.ModuleDict, TrainingState]:
    """A model of which one part has had no gradient yet."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "late": nn.Linear(4, 1)})
    moved = optimizer(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    return model, TrainingState(model, moved, None, Counters(batch_total=8))


def _step(model: nn.ModuleDict, state: TrainingState, *parts: str) -> None:
    sum(model[part](torch.ones(4)).sum() for part in parts).backward()
    (optimizer,) = state._optimizers
    optimizer.step()
    optimizer.zero_grad()
    state.counters.step += 1


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_parameter_without_a_gradient_yet_has_no_state_and_none_is_missed(
    tmp_path: Path, is_reused: bool
) -> None:
    checkpoints = _checkpoints(tmp_path)
    model, state = _with_a_late_part(torch.optim.Adam)
    _step(model, state, "used")
    state.save(checkpoints, at_once=True)
    reader, restored = _with_a_late_part(torch.optim.Adam)
    if is_reused:
        _step(reader, restored, "used", "late")
    path = checkpoints.newest()
    assert path is not None
    restored.restore(checkpoints, path)
    for each, its_state in ((model, state), (reader, restored)):
        _step(each, its_state, "used", "late")
    for one, other in zip(model.parameters(), reader.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_that_was_not_there_when_restoring_comes_back_as_well(tmp_path: Path) -> None:
    checkpoints = _checkpoints(tmp_path)
    model, state = _with_a_late_part(torch.optim.Adam)
    _step(model, state, "used", "late")
    state.save(checkpoints, at_once=True)
    reader, restored = _with_a_late_part(torch.optim.Adam)
    _step(reader, restored, "used")
    path = checkpoints.newest()
    assert path is not None
    restored.restore(checkpoints, path)
    assert len(restored.state_dict()["optimizer"]["state"]) == 4


def test_the_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    checkpoints = _checkpoints(tmp_path)
    model, state = _with_a_late_part(torch.optim.SGD)
    _step(model, state, "used")
    state.save(checkpoints, at_once=True)
    path = checkpoints.newest()
    assert path is not None
    with pytest.raises(CheckpointError, match="does not go with this model"):
        _with_a_late_part(torch.optim.Adam)[1].restore(checkpoints, path)


@pytest.mark.parametrize("failures", [2, 100])
def test_what_can_not_be_read_now_is_not_taken_for_corrupt(
    tmp_path: Path, monkeypatch, failures: int
) -> None:
    for step in (1, 2):
        _save(_state(), _checkpoints(tmp_path), step)
    digest, left = checkpoint_files.file_digest, [failures]

    def unreliable(path: Path) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EIO, "Input/output error")
        return digest(path)

    monkeypatch.setattr(checkpoint_files, "file_digest", unreliable)
    checkpoints = Checkpoints(tmp_path, 2, VirtualClock())
    if failures == 2:
        assert checkpoints.newest() == tmp_path / "step-000000000002"
    else:
        with pytest.raises(CheckpointError, match=r"can't be read \(Input/output error\)"):
            checkpoints.newest()
    assert len(list(tmp_path.glob("step-*[0-9]"))) == 2, "none is renamed"


def test_two_starters_may_set_the_same_checkpoint_aside(tmp_path: Path, monkeypatch) -> None:
    for step in (1, 2):
        _save(_state(), _checkpoints(tmp_path), step)
    newest = tmp_path / "step-000000000002"
    fault_in = checkpoint_files.fault_in_files

    def other_was_faster(path: Path, *arguments: Any) -> str | None:
        if path == newest:
            path.rename(tmp_path / "elsewhere")
            return "it is corrupt"
        return fault_in(path, *arguments)

    monkeypatch.setattr(checkpoint_reading, "fault_in_files", other_was_faster)
    assert _checkpoints(tmp_path).newest() == tmp_path / "step-000000000001"


def test_only_what_was_abandoned_long_ago_is_removed(tmp_path: Path) -> None:
    names = (".step-000000000001.7.partial", ".step-000000000002.8.partial", "step-3")
    for name in names:
        (tmp_path / name).mkdir()
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (0, 0))
    two_days_seconds = 2 * 86_400.0
    os.utime(tmp_path / names[1], (two_days_seconds, two_days_seconds))
    Checkpoints(tmp_path, 2, VirtualClock(two_days_seconds + 60)).remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])


def test_own_state_that_has_changed_since_is_saved_at_the_same_step(tmp_path: Path) -> None:
    own = {"best": 0.1}
    state, checkpoints = _state(own=own), _checkpoints(tmp_path)
    _save(state, checkpoints, 3)
    written = (tmp_path / name_of(3)).stat().st_ino
    _save(state, checkpoints, 3)
    assert (tmp_path / name_of(3)).stat().st_ino == written, "nothing has changed"
    own["best"] = 0.9
    _save(state, checkpoints, 3)
    assert [path.name for path in tmp_path.iterdir()] == [name_of(3)]
    later = _checkpoints(tmp_path)
    found = later.newest()
    assert found is not None
    restored = {"best": 0.0}
    _state(own=restored).restore(later, found)
    assert restored == {"best": 0.9}
