"""The tests that `make test` leaves to `make test-all`, and the commands that run them."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def listed() -> list[str]:
    lists: dict[str, list[str]] = tomllib.loads((ROOT / "tests" / "extended.toml").read_text())
    return [name for names in lists.values() for name in names]


def functions_of(path: Path) -> set[str]:
    """Return the names of the test functions in a file, with their classes."""
    names: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.ClassDef):
            names |= {
                f"{statement.name}::{part.name}"
                for part in statement.body
                if isinstance(part, ast.FunctionDef)
            }
    return names


def test_what_is_listed_exists() -> None:
    missing = []
    for name in listed():
        file, _, test = name.partition("::")
        path = ROOT / file
        function = test.partition("[")[0]
        is_inherited = "::" in function  # from a suite of tests/conformance
        if not path.is_file() or (
            function and not is_inherited and function not in functions_of(path)
        ):
            missing.append(name)
    assert missing == []


def test_no_test_is_listed_twice() -> None:
    assert len(listed()) == len(set(listed()))


def test_ci_runs_the_test_command_of_the_readme_that_has_all_tests() -> None:
    commands = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), re.M)
    of_readme = re.findall(r"^make (test[a-z-]*)", (ROOT / "README.md").read_text(), re.M)
    assert of_readme == ["test", "test-all"]
    assert "test-all" in commands
    assert "test" not in commands


def test_all_tests_but_those_with_commands_of_their_own_are_in_test_all() -> None:
    """The everyday tests leave out the extended ones; nothing else differs."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    (everyday,) = re.findall(r"-m '([^']*)'", options["ini_options"]["addopts"])
    (recipe,) = re.findall(r"^test-all:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    (everything,) = re.findall(r'-m "([^"]*)"', recipe)
    assert everyday == f"{everything} and not extended"
