from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.paths import inside, relative_names, require_absolute_path

ROOT = PurePosixPath("/state/logs")


def test_a_path_is_made_from_names() -> None:
    assert inside(ROOT, "digits.2", "digits.2-0-1.log") == ROOT / "digits.2" / "digits.2-0-1.log"


@pytest.mark.parametrize("name", ["", ".", "..", "/etc", "a/b", "../a", "a\0", "a\nb", "é" * 128])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="can't be the name of a file"):
        inside(ROOT, "job", name)


@given(st.lists(st.text(max_size=300), max_size=4))
def test_no_name_leads_out_of_the_root(names: list[str]) -> None:
    try:
        path = inside(ROOT, *names)
    except SpecError:
        return
    assert path.parts == (*ROOT.parts, *names)


@given(st.text(st.sampled_from("./a\0\n"), max_size=12))
def test_no_relative_path_leads_out_of_the_root(path: str) -> None:
    try:
        names = relative_names(path, "checkpoint.directory")
    except SpecError as error:
        assert error.field == "checkpoint.directory"
        return
    assert inside(ROOT, *names).is_relative_to(ROOT)


@pytest.mark.parametrize("path", ["models", "", "/a/../b", "/a\x1b", "/" + "a/" * 600])
def test_an_absolute_path_that_can_not_be_one_is_refused(path: str) -> None:
    with pytest.raises(SpecError, match="must be an absolute path"):
        require_absolute_path(path, "data.0.source")
