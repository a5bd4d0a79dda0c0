"""Saves of a restartable job: which save a start begins from, and what it finds on its disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.domain.restart import RestartSpec
from autoscaler.domain.storage import StorageGrant
from autoscaler.node.restarts.matches import Pattern, pattern_below
from autoscaler.node.restarts.restoring import Restore, restored
from autoscaler.node.restarts.save_place import SaveDirectory, SavePlace, StoredSaves
from autoscaler.node.restarts.saver import CommandEnd, Saved, Saver, Watched
from autoscaler.node.restarts.saves import (
    Save,
    SavedFile,
    Saves,
    StartName,
    require_sound_save,
)
from autoscaler.objects import Objects, always

USER = os.geteuid()
CLEAN = CommandEnd(2000.0, is_clean=True)
FIRST, SECOND = StartName(7, 1), StartName(7, 2)


def directory_place(path: Path) -> SavePlace:
    return SaveDirectory(path)


def stored_place(path: Path) -> SavePlace:
    place = f"file://{path}"
    return StoredSaves(lambda: Objects(place, always(StorageGrant(place))))


@pytest.fixture(params=[directory_place, stored_place])
def saves(request: pytest.FixtureRequest, tmp_path: Path) -> Saves:
    make: Callable[[Path], SavePlace] = request.param
    return Saves(make(tmp_path / "place"), tmp_path / "staging")


def write(work: Path, name: str, text: str, seconds: int) -> None:
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))


def save_newest(saves: Saves, work: Path, start: StartName, kept: int = 2) -> Save:
    pattern = pattern_below(work, "ckpt/step-*")
    return saves.save(pattern.matches()[-1], work, start, kept)


def take(saves: Saves, work: Path, start: StartName, leads: bool, since_ns: int = 0) -> int:
    pattern: Pattern = pattern_below(work, "ckpt/step-*")
    work.mkdir(exist_ok=True)
    return restored(Restore(start, leads, pattern, saves, USER, since_ns))


def texts(work: Path) -> dict[str, str]:
    files = (path for path in (work / "ckpt").rglob("*") if path.is_file())
    return {str(path.relative_to(work / "ckpt")): path.read_text() for path in files}


def test_all_instances_begin_from_the_leaders_choice(saves: Saves, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, "ckpt/step-1/model", "one", 100)
    write(first, "ckpt/step-1/rng/0", "0", 101)
    save_newest(saves, first, FIRST)
    with pytest.raises(NotFound):
        take(saves, second, SECOND, leads=False)
    assert take(saves, first, SECOND, leads=True) == 101 * 10**9
    assert take(saves, second, SECOND, leads=False) == 101 * 10**9
    assert texts(second) == texts(first) == {"step-1/model": "one", "step-1/rng/0": "0"}


def test_a_choice_stays_although_a_former_leader_still_saves(saves: Saves, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write(old, "ckpt/step-1", "one", 100)
    save_newest(saves, old, FIRST)
    take(saves, new, SECOND, leads=True)
    for seconds in (200, 300, 400):
        write(old, f"ckpt/step-{seconds}", "late", seconds)
        save_newest(saves, old, FIRST)
    assert take(saves, tmp_path / "third", SECOND, leads=False) == 100 * 10**9
    write(new, "ckpt/step-150", "new run", 150)
    label = save_newest(saves, new, SECOND).label
    assert saves.newest() == label, "the save of the later start is newer, whatever its time"


def test_later_matches_of_an_abandoned_run_are_deleted(saves: Saves, tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work, "ckpt/step-0", "laid out", 50)
    take(saves, work, FIRST, leads=True, since_ns=60 * 10**9)
    assert texts(work) == {"step-0": "laid out"}
    write(work, "ckpt/step-1", "one", 100)
    save_newest(saves, work, FIRST)
    write(work, "ckpt/step-2", "unsaved", 200)
    take(saves, work, SECOND, leads=True, since_ns=60 * 10**9)
    assert texts(work) == {"step-0": "laid out", "step-1": "one"}


def test_without_a_save_all_begin_from_the_beginning(saves: Saves, tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work, "ckpt/step-1", "unsaved", 100)
    assert take(saves, work, FIRST, leads=True, since_ns=60 * 10**9) == 0
    assert texts(work) == {}


def test_a_changed_file_of_the_chosen_match_is_fetched_again(saves: Saves, tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work, "ckpt/step-1", "one", 100)
    save_newest(saves, work, FIRST)
    write(work, "ckpt/step-1", "overwritten and torn", 200)
    take(saves, work, SECOND, leads=True)
    assert texts(work) == {"step-1": "one"}


def test_only_the_newest_saves_are_kept(saves: Saves, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for number in range(5):
        write(work, f"ckpt/step-{number}", str(number), 100 + number)
        save_newest(saves, work, FIRST, kept=2)
        if number == 1:
            take(saves, work, SECOND, leads=True)
    kept = [saves.read(label).match for label in saves.labels()]
    assert kept == ["ckpt/step-1", "ckpt/step-3", "ckpt/step-4"], "the last start's stays"


def test_a_linked_folder_receives_no_files(saves: Saves, tmp_path: Path) -> None:
    first, second, outside = (tmp_path / name for name in ("first", "second", "outside"))
    write(first, "ckpt/step-1", "one", 100)
    save_newest(saves, first, FIRST)
    take(saves, first, SECOND, leads=True)
    outside.mkdir()
    second.mkdir()
    (second / "ckpt").symlink_to(outside)
    with pytest.raises(OSError):
        take(saves, second, SECOND, leads=False)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "ckpt/../x", "ckpt/step-10", ""])
def test_saves_that_lead_elsewhere_are_refused(path: str) -> None:
    save = Save("label", "ckpt/step-1", (SavedFile(path, 1, "0" * 64, 0),))
    with pytest.raises(SpecError):
        require_sound_save(save, "label")


@settings(max_examples=30, deadline=None)
@given(
    writes=st.lists(
        st.tuples(st.integers(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=12
    )
)
def test_after_any_run_all_instances_have_the_same_newest_match(
    writes: list[tuple[int, bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two instances lead in turn; some matches are saved, some are lost with a restart."""
    base = tmp_path_factory.mktemp("runs")
    saves = Saves(SaveDirectory(base / "place"), base / "staging")
    works = [base / "first", base / "second"]
    generation, seconds = 1, 1000
    for leader, is_saved, restarts in writes:
        seconds += 10
        write(works[leader], f"ckpt/step-{seconds}", str(seconds), seconds)
        if is_saved:
            save_newest(saves, works[leader], StartName(1, generation))
        if not restarts:
            continue
        generation += 1
        start = StartName(1, generation)
        times = [take(saves, works[leader], start, leads=True)]
        times.append(take(saves, works[1 - leader], start, leads=False))
        assert times[0] == times[1]
        newest = [max(texts(work), default=None) for work in works]
        assert newest[0] == newest[1]
        assert (newest[0] is None) == (times[0] == 0)


def watched(work: Path, saves: Saves | None, began_seconds: float = 1000.0) -> Watched:
    pattern = pattern_below(work, "ckpt/step-*")
    return Watched(FIRST, RestartSpec("ckpt/step-*"), pattern, saves, round(began_seconds * 1e9))


def latest_of(state: Watched) -> Saved:
    assert state.latest is not None
    return state.latest


class TestSaver:
    def test_a_match_counts_once_it_is_quiet(self, saves: Saves, tmp_path: Path) -> None:
        clock = VirtualClock(1000.0)
        saver, state = Saver(clock, lambda: None, lambda text: None), watched(tmp_path, saves)
        write(tmp_path, "ckpt/step-1", "on", 1005)
        clock.advance(6.0)
        saver.scan(state)
        assert state.latest is None, "it was not seen before"
        write(tmp_path, "ckpt/step-1", "one", 1006)
        clock.advance(4.0)
        saver.scan(state)
        assert state.latest is None, "it has changed since"
        saver.scan(state)
        assert latest_of(state).modified_seconds == 1006
        name = latest_of(state).name
        saver.scan(state)
        assert latest_of(state).name == name
        assert len(saves.labels()) == 1
        write(tmp_path, "ckpt/step-1", "two", 1007)
        saver.scan(state, CLEAN)
        assert latest_of(state).name != name, "an overwritten checkpoint is a new one"

    def test_older_matches_are_not_new(self, saves: Saves, tmp_path: Path) -> None:
        clock = VirtualClock(2000.0)
        saver, state = Saver(clock, lambda: None, lambda text: None), watched(tmp_path, saves)
        write(tmp_path, "ckpt/step-1", "before the start", 900)
        saver.scan(state, CLEAN)
        assert state.latest is None and saves.labels() == []

    def test_a_shared_directory_is_observed_only(self, tmp_path: Path) -> None:
        clock = VirtualClock(2000.0)
        saver, state = Saver(clock, lambda: None, lambda text: None), watched(tmp_path, None)
        write(tmp_path, "ckpt/step-1", "one", 1100)
        saver.scan(state, CLEAN)
        assert state.latest is not None

    def test_the_last_scan_follows_the_end(self, saves: Saves, tmp_path: Path) -> None:
        clock, notes = VirtualClock(2000.0), list[str]()
        saver = Saver(clock, lambda: None, notes.append)
        assert saver.is_settled(CLEAN), "nothing is watched"
        saver.watch(watched(tmp_path, saves))
        write(tmp_path, "ckpt/step-1", "at SIGTERM", 1999)
        assert not saver.is_settled(CLEAN)
        while saver.is_busy:
            pass
        assert saver.is_settled(CLEAN)
        assert len(saves.labels()) == 1 and notes == []

    @pytest.mark.parametrize(
        ("modified", "end", "is_saved"),
        [
            (1990, CommandEnd(1995.0), True),
            (1994, CommandEnd(1995.0), False),
            (1995, CommandEnd(1995.0, left_in_time=True), False),
            (1998, CommandEnd(1995.0, left_in_time=True), True),
            (1998, CommandEnd(1995.0), False),
            (1999, CommandEnd(2000.0, is_clean=True), True),
        ],
    )
    def test_a_match_that_may_be_cut_off_is_left_out(
        self, saves: Saves, tmp_path: Path, modified: int, end: CommandEnd, is_saved: bool
    ) -> None:
        clock = VirtualClock(2000.0)
        saver, state = Saver(clock, lambda: None, lambda text: None), watched(tmp_path, saves)
        write(tmp_path, "ckpt/step-1", "text", modified)
        saver.scan(state, end)
        assert (state.latest is not None) is is_saved
