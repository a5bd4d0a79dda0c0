"""Workloads read from files, and errors for invalid files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.workloads.workload import Arrival, read_workload, require_applications

HEADER = "name,time,application,num_replicas,batch_size\n"


def test_columns_may_be_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text("batch_size,name,extra,time,num_replicas,application\n64,a-0,?,1.5,4,a\n\n")
    assert read_workload(path) == (Arrival("a-0", 1.5, "a", 4, 64),)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a-0,5,a,1,8\na-1,4,a,1,8\n", ":3: time: 4 is before the row above"),
        ("a-0,5,a,1,8\na-0,5,a,1,8\n", ':3: name: "a-0" occurs twice'),
        ("a-0,-1,a,1,8\n", ":2: time: -1 is below 0"),
        ("a-0,soon,a,1,8\n", ':2: time: "soon" is not a number'),
        ("a-0,5,,1,8\n", ":2: application: is empty"),
        ("a-0,5,a,0,8\n", ":2: num_replicas: 0 is not above 0"),
        ("a-0,5,a,1,8.5\n", ":2: batch_size: 8.5 is not a whole number"),
        ("a-0,5,a,1\n", ":2: has more or fewer fields"),
        ("a-0,5,a,1,12", ":2: ends within a line"),
        ("", ": has no rows"),
    ],
)
def test_line_and_field_are_named(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(HEADER + rows)
    with pytest.raises(SpecError) as raised:
        read_workload(path)
    assert str(raised.value).startswith(f"{path}{message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none.csv: can't be read: No such file"):
        read_workload(tmp_path / "none.csv")


def test_every_application_needs_a_profile() -> None:
    workload = (Arrival("a-0", 0.0, "a", 1, 8), Arrival("b-1", 0.0, "b", 1, 8))
    require_applications(workload, {"a", "b"})
    with pytest.raises(SpecError, match=r'b-1: application: "b" has no profile: there are a$'):
        require_applications(workload, {"a"})


def test_the_published_workload_loads() -> None:
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        pytest.skip("CASTOR_DATA is not set: no published workloads")
    workload = read_workload(Path(data) / "pollux" / "workloads" / "workload-6.csv")
    assert len(workload) == 160
    assert workload[0] == Arrival("cifar10-0", 53.0, "cifar10", 6, 2048)
    assert workload[-1].submitted_seconds <= 8 * 3600
