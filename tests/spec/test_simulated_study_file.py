from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.spec.simulated_study_file import SearchSpec, load_simulated_study

STUDY = """
name: s
curves: curves.csv
search:
  synchronous: {configurations: 9, eta: 3, rungs: [1, 3, 9]}
scaling:
  speedup: {1: 1, 2: 1.8}
objective: {deadline: 2h, budget: 5}
pause: 60s
"""


def read(tmp_path: Path, text: str) -> object:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return load_simulated_study(path)


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    spec = load_simulated_study(path)
    assert spec.search == SearchSpec(9, 3, (1.0, 3.0, 9.0))
    assert spec.scaling.speedup == ((1, 1.0), (2, 1.8))
    assert spec.curves == tmp_path / "curves.csv"
    assert spec.objective.deadline_seconds == 7200.0
    assert (spec.pause_seconds, spec.start_seconds, spec.maximize) == (60.0, None, False)
    rule = "asynchronous: {trials: 5, min_resource: 2, eta: 4, at_once: 3}"
    path.write_text(
        STUDY.replace("synchronous: {configurations: 9, eta: 3, rungs: [1, 3, 9]}", rule)
    )
    assert load_simulated_study(path).search == SearchSpec(5, 4, (), 2.0, 3)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("eta: 3", "eta: 1", "study.yaml:5: search.synchronous.eta: must be at least 2"),
        ("rungs: [1, 3, 9]", "rungs: [3, 1]", "rungs: write the epochs of each in rising order"),
        ("synchronous", "synchronized", 'unknown key "synchronized": did you mean'),
        ("  speedup: {1: 1, 2: 1.8}", "  application: bert", "write one of speedup and profiles"),
        ("{1: 1, 2: 1.8}", "{1: 1, 2: no}", "scaling.speedup.2: must be a number"),
        ("deadline: 2h", "deadline: 2031-01-01T00:00Z", "a simulation has no dates"),
        ("name: s", "", "name: is required"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        read(tmp_path, STUDY.replace(before, after))
    assert message in str(refused.value)
