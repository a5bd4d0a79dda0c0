"""A flag that the ranks of an instance see in shared memory."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.shared_flag import SharedFlag
from tests.training.together import at_once


class Rank:
    """One of two ranks of an instance, on a thread of its own."""

    barriers = threading.Barrier(2)
    said: Any = None
    ranks = 2

    def __init__(self, rank: int) -> None:
        self.is_leader = rank == 0

    def value_from_leader(self, value: Any) -> Any:
        if self.is_leader:
            Rank.said = value
        self.barriers.wait()
        return Rank.said

    def barrier(self) -> None:
        self.barriers.wait()


def flags() -> list[SharedFlag]:
    instances = [cast(InstanceRanks, Rank(rank)) for rank in range(2)]
    return at_once([lambda own=own: SharedFlag(own) for own in instances])


@pytest.mark.parametrize("raising", [0, 1])
def test_both_ranks_see_it_and_it_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raising: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = flags()
    assert [flag.is_raised for flag in pair] == [False, False]
    pair[raising].raise_up()
    assert [flag.is_raised for flag in pair] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_each_has_its_own_where_no_file_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    pair = flags()
    pair[1].raise_up()
    assert [flag.is_raised for flag in pair] == [False, True]
