"""Folders of profiles: valid files, and errors for invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles.profiles import read_profiles
from tests.simulator.profile_files import APPLICATION, write

Change = Callable[[str], str]


class TestFolders:
    def test_step_times_and_statistics_may_be_in_several_directories(self, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        for path in write(here, "-a100").glob("validation*"):
            path.unlink()
        for path in write(there).glob("[ps]*"):
            path.unlink()
        (there / "workloads").mkdir()
        profiles = read_profiles(here, there)
        assert set(profiles) == {APPLICATION}
        assert profiles[APPLICATION].kinds == {"a100"}
        with pytest.raises(SpecError, match="name the directory that has them"):
            read_profiles(here)
        with pytest.raises(SpecError, match=r"no sub-folder of .*there has a placements.csv"):
            read_profiles(there)

    def test_one_thing_is_in_one_place(self, tmp_path: Path) -> None:
        write(tmp_path / "here")
        write(tmp_path / "there")
        with pytest.raises(SpecError, match="there/toy: repeats step times of toy on 'default'"):
            read_profiles(tmp_path / "here", tmp_path / "there")
        for path in (tmp_path / "there").glob("toy/[ps]*"):
            path.unlink()
        with pytest.raises(SpecError, match=r"there/toy/validation-16.csv: repeats batch 16"):
            read_profiles(tmp_path / "here", tmp_path / "there")

    def test_a_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="nowhere: is not a directory"):
            read_profiles(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("placements_old.csv", "is neither placements.csv nor placements-KIND.csv"),
            ("placements-default.csv", "is of kind 'default' like placements"),
            ("scalability-t4.csv", "has no placements file of its kind"),
            ("validation-0.csv", "is not validation-B.csv"),
            ("validation-big.csv", "is not validation-B.csv"),
        ],
    )
    def test_a_file_with_another_name_is_named(
        self, tmp_path: Path, name: str, message: str
    ) -> None:
        (write(tmp_path) / name).write_text("\n")
        with pytest.raises(SpecError, match=message):
            read_profiles(tmp_path)


def cell(line: int, column: int, text: str) -> Change:
    """Replace one field by `text`; lines count from 1."""

    def change(whole: str) -> str:
        lines = whole.splitlines()
        fields = lines[line - 1].split(",")
        fields[column] = text
        lines[line - 1] = ",".join(fields)
        return "\n".join(lines) + "\n"

    return change


def repeated(line: int) -> Change:
    return lambda whole: whole + whole.splitlines()[line - 1] + "\n"


PLACEMENTS_FILE, SCALABILITY_FILE, RUN_FILE = (
    "placements.csv",
    "scalability.csv",
    "validation-16.csv",
)


class TestBadFiles:
    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            (PLACEMENTS_FILE, lambda _: "", ": is empty"),
            (PLACEMENTS_FILE, lambda text: text.splitlines()[0] + "\n", ": has no rows"),
            (PLACEMENTS_FILE, lambda text: text[:-3], ":43: ends within a line"),
            (PLACEMENTS_FILE, lambda text: text + '1,"8\n', ":44: is not CSV: unexpected end"),
            (PLACEMENTS_FILE, lambda text: text + "1,8,2\n", ":44: has more or fewer fields"),
            (PLACEMENTS_FILE, lambda text: text + "1,8,2,1,0\n", ":44: has more or fewer fields"),
            (PLACEMENTS_FILE, cell(1, 2, "seconds"), ":1: lacks the column step_time"),
            (PLACEMENTS_FILE, cell(1, 0, "step_time"), ':1: has the column "step_time" twice'),
            (PLACEMENTS_FILE, cell(2, 0, "1x"), ':2: placement: "1x" is not a digit from 1 to 9'),
            (PLACEMENTS_FILE, cell(2, 0, "10"), ':2: placement: "10" is not a digit from 1 to 9'),
            (PLACEMENTS_FILE, cell(4, 2, ""), ":4: step_time: is empty"),
            (PLACEMENTS_FILE, cell(4, 2, "fast"), ':4: step_time: "fast" is not a number'),
            (PLACEMENTS_FILE, cell(4, 2, "nan"), ':4: step_time: "nan" is not finite'),
            (PLACEMENTS_FILE, cell(4, 2, "inf"), ':4: step_time: "inf" is not finite'),
            (PLACEMENTS_FILE, cell(4, 2, "0"), ":4: step_time: 0 is not above 0"),
            (PLACEMENTS_FILE, cell(4, 3, "-1"), ":4: sync_time: -1 is below 0"),
            (PLACEMENTS_FILE, cell(4, 3, "1"), ":4: sync_time: 1 is not below step_time="),
            (PLACEMENTS_FILE, cell(4, 1, "0"), ":4: local_bsz: 0 is not above 0"),
            (PLACEMENTS_FILE, repeated(2), ":44: local_bsz: 8 occurs twice for 1"),
            (PLACEMENTS_FILE, lambda text: text + "21,8,2,1\n", ":44: local_bsz: 8 occurs twice"),
            (SCALABILITY_FILE, cell(2, 3, "1.5"), ":2: num_nodes: 1.5 is not a whole number"),
            (SCALABILITY_FILE, cell(2, 4, "3"), ":2: num_replicas: 3 devices can't be on 4 nodes"),
            (SCALABILITY_FILE, repeated(2), ":20: step_time: repeats an earlier row"),
            (RUN_FILE, cell(3, 2, "100"), ":3: progress: 100 is not above the row before"),
            (RUN_FILE, cell(2, 1, "-1"), ":2: grad_sqr: -1 is below 0"),
            (RUN_FILE, lambda text: text.replace("8.0,4.0", "0,0"), ":2: grad_sqr: is 0, and so"),
            (RUN_FILE, lambda text: "".join(text.splitlines(True)[:3]), ": has 2 epochs where"),
        ],
    )
    def test_file_line_and_field_are_named(
        self, tmp_path: Path, name: str, change: Change, message: str
    ) -> None:
        path = write(tmp_path) / name
        path.write_text(change(path.read_text()))
        with pytest.raises(SpecError) as raised:
            read_profiles(tmp_path)
        assert str(raised.value).startswith(f"{path}{message}")
        assert "\n" not in str(raised.value)

    def test_what_is_not_text_is_said_to_be_none(self, tmp_path: Path) -> None:
        path = write(tmp_path) / PLACEMENTS_FILE
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SpecError, match="is not text in UTF-8"):
            read_profiles(tmp_path)
