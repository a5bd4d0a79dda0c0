"""Plain English in docstrings, comments and names, with counts of older findings that shrink."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.style.plain_english import (
    Finding,
    allowed,
    excess,
    findings_by_file,
    findings_in,
    has_checked_names,
)

ROOT = Path(__file__).parents[2]


@cache
def all_findings() -> dict[str, list[Finding]]:
    return findings_by_file()


def test_no_file_has_more_findings_than_allowed() -> None:
    assert [str(finding) for finding in excess(all_findings(), allowed())] == []


@pytest.mark.parametrize(
    ("file", "is_checked"),
    [
        ("providers/base.py", True),
        ("tests/cli/conftest.py", True),
        ("tests/cli/test_tables.py", False),
        ("tests/fakes/gcp/test_bulk.py", True),
    ],
)
def test_names_are_checked_in_all_but_most_test_modules(file: str, is_checked: bool) -> None:
    assert has_checked_names(ROOT / file) is is_checked


def test_allowed_counts_only_shrink() -> None:
    """Run `python -m tests.style.plain_english --shrink` when fewer findings are left."""
    by_file = all_findings()
    outdated = {
        file: f"{count} allowed, {len(by_file.get(file, ()))} left"
        for file, count in allowed().items()
        if count > len(by_file.get(file, ()))
    }
    assert outdated == {}


def test_files_without_the_rule_on_moods_exist() -> None:
    """Every file that pyproject.toml excuses from D401 exists."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    excused = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    files = [file for file, rules in excused.items() if "D401" in rules and file.endswith(".py")]
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('"""What a job costs."""', "opens with a hidden subject"),
        ('def f():\n    """As `g`, but faster."""', "opens with a hidden subject"),
        ('"""Price of a job. Whoever pays it is a user."""', "a pronoun in place of a name"),
        ("x = 1  # the purse of a job", "not a term of the field"),
        ("for each in jobs: pass", "the name says nothing of its value"),
        ("def f(told): pass", "the name says nothing of its value"),
        ("f = lambda own: own", "the name says nothing of its value"),
        ("class CrewSize: pass", "the name is no term of the field"),
        ("def f(farewell_seconds): pass", "the name is no term of the field"),
    ],
)
def test_what_the_check_finds(tmp_path: Path, source: str, rule: str) -> None:
    (tmp_path / "module.py").write_text(source)
    assert rule in {finding.rule for finding in findings_in(tmp_path / "module.py")}


@pytest.mark.parametrize(
    "source",
    [
        '"""Price of a job, in US dollars per hour."""',
        '"""On-demand price of an offer."""',
        'def f():\n    """Return the price. It is never negative."""',
        "for offer in offers: pass",
        "class Recorder: pass",
    ],
)
def test_plain_english_has_no_findings(tmp_path: Path, source: str) -> None:
    (tmp_path / "module.py").write_text(source)
    assert findings_in(tmp_path / "module.py") == []
