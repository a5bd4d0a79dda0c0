"""Replicas that would train something else are refused by name."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.errors import MismatchError
from autoscaler.training.data_path import order_of
from autoscaler.training.identity import fingerprint_of
from autoscaler.training.members.rounds import ROW_WIDTH, ReplicaRow, decode, encode
from autoscaler.training.own_code import digest
from autoscaler.training.state.fingerprint import (
    SLOTS,
    Fingerprint,
    require_equal,
    require_equal_shapes,
)
from tests.training.alone import script
from tests.training.fleet import SCRIPTS, Fleet, ReplicaProcess, Roster, wait_until
from tests.training.traces import is_training


def _fingerprint(width: int = 4, examples: int = 64, **changes: Any) -> Fingerprint:
    model = nn.Linear(width, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    its_script = script(model, optimizer, TensorDataset(torch.ones(examples)), **changes)
    return fingerprint_of(its_script, order_of(its_script))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 7}, "the seed is 7 here and 0 on replica b"),
        ({"examples": 63}, "the length of the dataset is 63 here and 64 on replica b"),
        ({"width": 5}, "the number of the model's parameters is 6 here and 5 on replica b"),
        ({"shuffle": False}, "another argument of session differs"),
        ({"batch_size": 8}, "another argument of session differs"),
    ],
)
def test_what_differs_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MismatchError, match="replica a can't train with replica b") as raised:
        require_equal(_fingerprint(**changes), _fingerprint(), "replica a", "replica b")
    assert words in str(raised.value)


def test_replicas_of_one_script_are_equal() -> None:
    require_equal(_fingerprint(), _fingerprint(), "replica a", "replica b")


def _with_modules(directory: Path, monkeypatch: pytest.MonkeyPatch, **sources: str) -> Fingerprint:
    """Return the fingerprint of a process with only these modules beside those of the tests."""
    directory.mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as patch:
        for name, text in sources.items():
            module, path = ModuleType(name), directory / f"{name}.py"
            path.write_text(text)
            module.__file__ = str(path)
            patch.setitem(sys.modules, name, module)
        return _fingerprint()


def _crossed(fingerprint: Fingerprint) -> Fingerprint:
    return Fingerprint.of(fingerprint.numbers())


def test_a_module_of_the_scripts_own_that_differs_is_named(tmp_path: Path, monkeypatch) -> None:
    own = _with_modules(tmp_path / "a", monkeypatch, losses="a = 1", layers="b = 1")
    same = _with_modules(tmp_path / "b", monkeypatch, losses="a = 1", layers="b = 1")
    other = _with_modules(tmp_path / "c", monkeypatch, losses="a = 2", layers="b = 1")
    require_equal(own, _crossed(same), "replica a", "replica b")
    with pytest.raises(MismatchError, match=r"the code differs in (.* or )?losses( or .*)?: run"):
        require_equal(own, _crossed(other), "replica a", "replica b")


def test_a_module_that_one_replica_has_loaded_is_no_difference(
    tmp_path: Path, monkeypatch
) -> None:
    slot = digest("losses") % SLOTS
    late = next(f"late{each}" for each in range(10**6) if digest(f"late{each}") % SLOTS == slot)
    own = _with_modules(tmp_path, monkeypatch, losses="a = 1")
    other = _with_modules(tmp_path, monkeypatch, losses="a = 1", **{late: "b = 1"})
    require_equal(own, _crossed(other), "replica a", "replica b")
    require_equal(other, _crossed(own), "replica b", "replica a")


def test_what_is_installed_or_made_by_a_package_is_not_compared(
    tmp_path: Path, monkeypatch
) -> None:
    plain = _fingerprint()
    installed = tmp_path / "lib" / "site-packages"
    assert _with_modules(installed, monkeypatch, somebodys="a = 1") == plain
    assert _with_modules(tmp_path, monkeypatch, **{"torch.compiled_here": "a = 1"}) == plain
    assert _with_modules(tmp_path, monkeypatch, ours="a = 1") != plain


def test_functions_that_are_given_are_part_of_the_code(tmp_path: Path, monkeypatch) -> None:
    def of(argument: str, text: str) -> Fingerprint:
        module, path = ModuleType("given"), tmp_path / "given.py"
        path.write_text(text)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "given", module)

        def function(*_: Any) -> None: ...

        function.__module__ = "given"
        return _fingerprint(**{argument: function})

    for argument in ("rehearsal", "worker_init_fn", "collate_fn"):
        assert of(argument, "a = 1").code != of(argument, "a = 2").code


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.9.1+cu130", None),
        ("2.9.1", None),
        ("2.10.0+cpu", "the version of torch is 2.9.1 here and 2.10.0 on replica b"),
        ("2.9.1rc1+cpu", "the version of torch differs"),
    ],
)
def test_versions_are_compared_but_for_builds(
    monkeypatch, version: str, words: str | None
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    own = _fingerprint()
    monkeypatch.setattr(torch, "__version__", version)
    other = _crossed(_fingerprint())
    if words is None:
        require_equal(own, other, "replica a", "replica b")
        return
    with pytest.raises(MismatchError, match=f"{words}: .* same versions of its code and packages"):
        require_equal(own, other, "replica a", "replica b")


def test_another_version_of_castor_is_named(monkeypatch) -> None:
    own = _fingerprint()
    monkeypatch.setattr(metadata, "version", lambda name: {"castor-autoscaler": "9.8.7"}[name])
    with pytest.raises(MismatchError, match=r"of castor is .* here and 9\.8\.7 on replica b"):
        require_equal(own, _crossed(_fingerprint()), "replica a", "replica b")


def test_a_fingerprint_travels_with_its_row_unchanged() -> None:
    row = ReplicaRow(1, 2, 3, 0, 1, 0, 32, 0.5, 0.25, fingerprint=_fingerprint(seed=2**60 + 1))
    numbers = torch.tensor(encode(row), dtype=torch.float64).tolist()
    assert len(numbers) == ROW_WIDTH
    assert decode(numbers) == row


def test_the_first_tensor_of_another_shape_is_named() -> None:
    own, other = nn.Linear(4, 2).state_dict(), nn.Linear(4, 3).state_dict()
    with pytest.raises(MismatchError, match="weight is 2x4 here and 3x4 on replica b"):
        require_equal_shapes(own, other, "replica b")
    with pytest.raises(MismatchError, match="bias is missing here and 2 on replica b"):
        require_equal_shapes({"weight": own["weight"]}, own, "replica b")


@pytest.fixture(params=["quorum", "roster"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    roster = Roster(tmp_path / "lighthouses") if request.param == "roster" else None
    fleet = Fleet(tmp_path, roster)
    yield fleet
    fleet.stop()


def _refused(first: ReplicaProcess, second: ReplicaProcess, words: str) -> None:
    assert second.wait(60) == 1
    assert words in second.log.read_text()
    at = first.step
    wait_until(lambda: first.step > at + 20, description="the other goes on without it")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ORDER": "5"}, "replica r1 can't train with replica r0: the seed is 5 here and 0 on"),
        ({"EXAMPLES": "500"}, "the length of the dataset is 500 here and 512 on replica r0"),
    ],
)
def test_a_joiner_with_another_order_of_examples_is_refused(
    fleet: Fleet, environment: dict[str, str], words: str
) -> None:
    first = fleet.start(EPOCHS="100000")
    wait_until(lambda: first.step > 5)
    _refused(first, fleet.start(EPOCHS="100000", **environment), words)


def test_a_joiner_with_other_code_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.start(EPOCHS="100000")
    wait_until(lambda: first.step > 5)
    changed = tmp_path / "regression.py"
    shutil.copy(SCRIPTS / "regression.py", changed)
    changed.write_text(changed.read_text() + "\n# another version\n")
    second = fleet.start(str(changed), EPOCHS="100000")
    _refused(first, second, "the code differs in regression.py")


def _script_with_losses(directory: Path, losses: str) -> Path:
    """Return a script whose helper module beside it is `losses`, and which imports more later."""
    directory.mkdir()
    (directory / "losses.py").write_text(losses)
    (directory / "rarely.py").write_text(f"NAME = {str(directory)!r}\n")
    text = (SCRIPTS / "regression.py").read_text()
    path = directory / "regression.py"
    late_import = "if taken == 1:\n                import rarely  # noqa\n"
    path.write_text(
        text.replace("import torch\n", "import torch\nimport losses\n", 1).replace(
            "            before = state", f"            {late_import}            before = state", 1
        )
    )
    return path


def test_a_joiner_with_another_helper_module_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    one, same, other = (
        _script_with_losses(tmp_path / name, f"SCALE = {scale}\n")
        for name, scale in (("one", 1), ("same", 1), ("other", 2))
    )
    first = fleet.start(str(one), EPOCHS="100000")
    wait_until(lambda: first.step > 5)
    second = fleet.start(str(same), EPOCHS="100000")
    wait_until(lambda: is_training(first, 2), description="one with equal code at another path")
    second.kill()
    _refused(first, fleet.start(str(other), EPOCHS="100000"), "the code differs in losses.py: run")


def test_ranks_of_one_instance_with_seeds_of_their_own_are_refused(fleet: Fleet) -> None:
    replica = fleet.start(EPOCHS="100000", ranks=2, ORDER_BY_RANK="1")
    assert replica.wait(60) == 1
    words = "rank 1 can't train with rank 0 of its instance: the seed is 1 here and 0 on rank 0"
    assert words in replica.logs[1].read_text()


def test_a_joiner_with_another_model_is_refused_before_it_takes_the_state(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        first = fleet.start(EPOCHS="100000")
        wait_until(lambda: first.step > 5)
        second = fleet.start(EPOCHS="100000", WIDTH="3")
        _refused(first, second, "the model's weight is 3x16 here and 1x16 on replica r0")
    finally:
        fleet.stop()
