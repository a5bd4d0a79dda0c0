"""Matches of a checkpoint pattern."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoscaler.node.restarts.matches import Pattern, pattern_below


def write(path: Path, text: str = "x", seconds: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))


def test_files_and_directories_match_by_name(tmp_path: Path) -> None:
    write(tmp_path / "ckpt/step-2.pt", "22", seconds=200)
    write(tmp_path / "ckpt/step-1/model.pt", "1", seconds=100)
    write(tmp_path / "ckpt/step-1/deep/rng.pt", "1", seconds=150)
    write(tmp_path / "ckpt/other.pt")
    write(tmp_path / "step-3.pt")
    matches = pattern_below(tmp_path, "ckpt/step-*").matches()
    assert [match.name for match in matches] == ["ckpt/step-1", "ckpt/step-2.pt"]
    assert [match.bytes for match in matches] == [2, 2]
    assert matches[0].modified_ns == 150 * 10**9


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "step-1")
    work = tmp_path / "work"
    write(work / "ckpt/step-0")
    (work / "ckpt/step-2").symlink_to(outside / "step-1")
    (work / "linked").symlink_to(outside)
    assert [m.name for m in pattern_below(work, "ckpt/*").matches()] == ["ckpt/step-0"]
    assert pattern_below(work, "linked/*").matches() == []


def test_files_of_other_users_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "step-1")
    pattern = pattern_below(tmp_path, "step-*")
    assert pattern.matches(user=os.geteuid())
    assert not pattern.matches(user=os.geteuid() + 1)


@pytest.mark.parametrize(
    ("checkpoint", "pattern"),
    [
        ("a/b-*", Pattern(Path("/w"), ("a", "b-*"))),
        ("/shared/runs/*/step-*", Pattern(Path("/shared/runs"), ("*", "step-*"))),
        ("/shared/last.pt", Pattern(Path("/shared"), ("last.pt",))),
    ],
)
def test_absolute_patterns_begin_at_their_directory(checkpoint: str, pattern: Pattern) -> None:
    assert pattern_below(Path("/w"), checkpoint) == pattern


def test_a_missing_root_has_no_matches(tmp_path: Path) -> None:
    assert pattern_below(tmp_path / "none", "step-*").matches() == []
