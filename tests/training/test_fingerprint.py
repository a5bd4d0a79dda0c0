"""Replicas that would train something else are refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.errors import MismatchError
from autoscaler.training.data_path import order_of
from autoscaler.training.identity import fingerprint_of
from autoscaler.training.members.rounds import ROW_WIDTH, Row, decode, encode
from autoscaler.training.state.fingerprint import Fingerprint, require_equal, require_equal_shapes
from tests.training.alone import script
from tests.training.fleet import SCRIPTS, Fleet, ReplicaProcess, Roster, wait_until


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


def test_a_fingerprint_travels_with_its_row_unchanged() -> None:
    row = Row(1, 2, 3, 0, 1, 0, 32, 0.5, 0.25, fingerprint=_fingerprint(seed=2**60 + 1))
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
    wait_until(lambda: first.step > at + 20, what="the other goes on without it")


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
    _refused(first, second, "the code of the script, the model or the dataset differs")


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
