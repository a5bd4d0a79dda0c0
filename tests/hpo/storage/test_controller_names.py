"""Names of studies at controllers: a study that begins anew gets another name."""

from __future__ import annotations

import optuna
import pytest

from hpo.storage.controller_names import (
    assign_controller_name,
    controller_name,
    names_by_controller,
    slug,
)


def study_of(name: str = "Digits!") -> optuna.Study:
    return optuna.create_study(study_name=name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits", "digits"),
        ("A real study!", "a-real-study"),
        ("...", "study"),
        ("x" * 50, "x" * 32),
    ],
)
def test_slugs(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_a_study_has_its_name_at_a_controller_for_good() -> None:
    study = study_of()
    assert assign_controller_name(study, "here", lambda name: False) == "digits"
    assert assign_controller_name(study, "here", lambda name: True) == "digits"
    assert controller_name("Digits!", names_by_controller(study), "here") == "digits"


def test_one_that_is_begun_anew_is_another(caplog: pytest.LogCaptureFixture) -> None:
    known = {"digits", "digits-v2"}
    study = study_of()
    assert assign_controller_name(study, "here", known.__contains__) == "digits-v3"
    assert "knows an earlier study 'Digits!': this one is digits-v3" in caplog.text
    assert assign_controller_name(study, "elsewhere", lambda name: False) == "digits"
    assert controller_name("Digits!", names_by_controller(study), "here") == "digits-v3"
    long = study_of("x" * 50)
    assert assign_controller_name(long, "here", {"x" * 32}.__contains__) == f"{'x' * 29}-v2"
