"""Copies of outputs, file by file, on a clock that stands still."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.output import MANIFEST_NAME, OutputManifest, OutputSpec, require_sound
from autoscaler.domain.storage import StorageGrant
from autoscaler.node.files import output_copy
from autoscaler.node.files.output_copy import OutputCopy, Pass, WorkTree
from autoscaler.node.files.output_places import OutputDirectory, OutputPlace, StoredOutputs
from autoscaler.node.files.outputs import load_laid_out, save_laid_out
from autoscaler.objects import Objects, always
from autoscaler.wire.codec import decode

NOW_SECONDS = 1_000_000.0
LONG_AGO_SECONDS = NOW_SECONDS - 60.0


class Bench:
    """A work directory, and the place that its outputs are copied to."""

    def __init__(self, directory: Path, place: OutputPlace, kept: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        self.kept = kept
        self.place = place
        self.manifest = OutputManifest("job", "job-0-1", 0.0, ())
        self.laid_out: dict[str, tuple[int, int]] = {}
        self.user: int | None = None

    def write(self, path: str, text: str, seconds: float = LONG_AGO_SECONDS) -> Path:
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (seconds, seconds))
        return file

    def copy(
        self, *patterns: str, is_last: bool = False, is_clean: bool = True, limit: int = 10_000
    ) -> Pass:
        spec = OutputSpec(patterns or None, limit)
        tree = WorkTree(self.work, self.laid_out, self.user)
        copy = OutputCopy(tree, spec, self.place, self.manifest, VirtualClock(NOW_SECONDS))
        done = copy.run(is_last, is_clean)
        self.manifest = done.manifest
        return done

    def texts(self) -> dict[str, str]:
        """The kept files by path, as someone reads them who has nothing but the place."""
        path = self.kept / MANIFEST_NAME
        if not path.exists():
            return {}
        manifest = decode(OutputManifest, path.read_bytes())
        assert manifest == self.manifest
        contents = {file.path: (self.kept / file.sha256).read_bytes() for file in manifest.files}
        for file in manifest.files:
            assert hashlib.sha256(contents[file.path]).hexdigest() == file.sha256
            assert len(contents[file.path]) == file.bytes
        return {path: content.decode() for path, content in contents.items()}

    def left_behind(self) -> set[str]:
        """Files at the place that the manifest does not name."""
        named = {file.sha256 for file in self.manifest.files} | {MANIFEST_NAME}
        return {path.name for path in self.kept.rglob("*")} - named


@pytest.fixture(params=["directory", "storage"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "directory":
        kept = tmp_path / "kept"
        return Bench(tmp_path, OutputDirectory(kept), kept)
    url = f"file://{tmp_path}/bucket"
    objects = Objects(url, always(StorageGrant(url)))
    place = StoredOutputs(objects, "outputs/job-0-1", tmp_path / "staged")
    return Bench(tmp_path, place, tmp_path / "bucket" / "outputs" / "job-0-1")


def test_files_that_the_script_wrote_or_changed_are_kept(bench: Bench, tmp_path: Path) -> None:
    bench.write("train.py", "the script")
    bench.write("notes.txt", "as packed")
    save_laid_out(tmp_path / "laid-out.json", bench.work)
    bench.laid_out = dict(load_laid_out(tmp_path / "laid-out.json"))
    bench.write("notes.txt", "changed by the script", LONG_AGO_SECONDS + 1)
    bench.write("runs/a/metrics.csv", "1,2,3")
    bench.write("__pycache__/train.pyc", "cache")
    bench.write(".venv/lib/x.py", "cache")
    bench.copy()
    assert bench.texts() == {"notes.txt": "changed by the script", "runs/a/metrics.csv": "1,2,3"}
    assert not bench.left_behind()


@pytest.mark.parametrize(
    ("patterns", "paths"),
    [
        (["best.pt"], {"best.pt"}),
        (["runs"], {"runs/a.pt", "runs/b/c.txt"}),
        (["runs/"], {"runs/a.pt", "runs/b/c.txt"}),
        (["*.pt"], {"best.pt"}),
        (["**/*.pt"], {"best.pt", "runs/a.pt"}),
        (["runs/*.pt", "best.pt"], {"best.pt", "runs/a.pt"}),
        (["!best.pt"], set()),
    ],
)
def test_patterns_count_from_the_work_directory(
    bench: Bench, patterns: list[str], paths: set[str]
) -> None:
    bench.write("best.pt", "best")
    bench.write("runs/a.pt", "a")
    bench.write("runs/b/c.txt", "c")
    bench.copy(*patterns)
    assert bench.texts().keys() == paths


def test_only_what_changed_is_copied_again_and_old_contents_go(bench: Bench) -> None:
    bench.write("same.txt", "same")
    bench.write("best.pt", "first")
    bench.copy()
    (same,) = [file for file in bench.manifest.files if file.path == "same.txt"]
    before = (bench.kept / same.sha256).stat().st_ino
    bench.write("best.pt", "second", LONG_AGO_SECONDS + 5)
    bench.copy()
    assert bench.texts() == {"same.txt": "same", "best.pt": "second"}
    assert (bench.kept / same.sha256).stat().st_ino == before
    (bench.work / "best.pt").unlink()
    bench.copy()
    assert bench.texts() == {"same.txt": "same"}
    assert not bench.left_behind()


def test_nothing_is_published_where_there_are_no_outputs(bench: Bench) -> None:
    bench.copy()
    assert not bench.kept.exists() or not any(bench.kept.iterdir())


def test_a_file_that_has_just_changed_is_kept_later(bench: Bench) -> None:
    bench.write("best.pt", "whole")
    bench.copy()
    bench.write("best.pt", "half of the ne", NOW_SECONDS - 0.5)
    bench.write("fresh.pt", "half", NOW_SECONDS - 0.5)
    done = bench.copy()
    assert set(done.unsettled) == {"best.pt", "fresh.pt"}
    assert bench.texts() == {"best.pt": "whole"}
    bench.write("best.pt", "half of the new one is whole now", NOW_SECONDS - 3.0)
    assert bench.copy().unsettled == ("fresh.pt",)
    assert bench.texts() == {"best.pt": "half of the new one is whole now"}


def test_the_last_copy_after_a_clean_end_takes_fresh_files(bench: Bench) -> None:
    bench.write("result.json", "{}", NOW_SECONDS)
    bench.copy(is_last=True)
    assert bench.texts() == {"result.json": "{}"}


def test_a_file_that_was_cut_off_by_a_failure_is_not_shown_as_whole(bench: Bench) -> None:
    bench.write("best.pt", "whole")
    bench.copy()
    bench.write("best.pt", "cut o", NOW_SECONDS - 0.5)
    bench.write("new.pt", "cut", NOW_SECONDS - 0.5)
    bench.write("old.txt", "finished")
    bench.copy(is_last=True, is_clean=False)
    assert bench.texts() == {
        "best.pt": "whole",
        "best.pt.unfinished": "cut o",
        "new.pt.unfinished": "cut",
        "old.txt": "finished",
    }


def test_links_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hush")
    (bench.work / "stolen").symlink_to(tmp_path / "secret" / "key")
    (bench.work / "folder").symlink_to(tmp_path / "secret")
    os.mkfifo(bench.work / "pipe")
    bench.write("mine.txt", "mine")
    bench.copy()
    assert bench.texts() == {"mine.txt": "mine"}
    bench.copy("**", "folder/key")
    assert bench.texts() == {"mine.txt": "mine"}


def test_files_of_another_user_are_left_out(bench: Bench) -> None:
    bench.write("mine.txt", "mine")
    bench.user = os.getuid() + 1
    bench.copy()
    assert bench.texts() == {}
    bench.user = os.getuid()
    bench.copy()
    assert bench.texts() == {"mine.txt": "mine"}


def test_the_smallest_files_are_kept_within_the_limit_and_the_others_are_named(
    bench: Bench,
) -> None:
    bench.write("large.pt", "x" * 300)
    bench.write("small.txt", "x" * 10)
    bench.write("middle.txt", "x" * 80)
    done = bench.copy(limit=100)
    assert bench.texts().keys() == {"small.txt", "middle.txt"}
    assert done.manifest.left_out == ("large.pt",)


def test_names_that_no_terminal_should_see_are_left_out(bench: Bench) -> None:
    bench.write("evil\x1b[2J.txt", "x")
    bench.write("fine.txt", "x")
    done = bench.copy()
    assert bench.texts().keys() == {"fine.txt"}
    assert done.manifest.left_out == ("evil\\x1b[2J.txt",)


def test_a_file_from_before_all_time_does_not_spoil_the_list(bench: Bench) -> None:
    bench.write("old.txt", "old", -1.0)
    bench.write("fine.txt", "fine")
    done = bench.copy()
    assert bench.texts() == {"fine.txt": "fine"}
    assert require_sound(done.manifest).left_out == ("old.txt",)


def test_a_file_that_can_not_be_read_does_not_keep_the_others_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("closed.txt", "closed")
    bench.write("fine.txt", "fine")
    opened = output_copy.open_below

    def refuse(root: Path, path: str) -> int:
        if path == "closed.txt":
            raise PermissionError(13, "Permission denied")
        return opened(root, path)

    monkeypatch.setattr(output_copy, "open_below", refuse)
    done = bench.copy(is_last=True)
    assert bench.texts() == {"fine.txt": "fine"}
    assert done.manifest.left_out == ("closed.txt",)


def test_a_copy_that_breaks_off_leaves_what_was_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("best.pt", "whole")
    bench.copy()
    bench.write("best.pt", "newer", LONG_AGO_SECONDS + 5)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(bench.place, "take", fail)
        with pytest.raises(OSError, match="No space left"):
            bench.copy()
    assert bench.texts() == {"best.pt": "whole"}
    assert not bench.left_behind()
    bench.copy()
    assert bench.texts() == {"best.pt": "newer"}
