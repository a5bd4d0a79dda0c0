"""The house rules of CONTRIBUTING.md that ruff does not know."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCTION = ("autoscaler", "hpo", "providers")
FRONT = "hpo/__init__.py"  # what a study's script imports: the names that it may use
FOLDERS = (*PRODUCTION, "benchmarks", "examples", "tests")

MOST_LINES_OF_FUNCTION = 60
MOST_LINES_OF_FILE = 400
MOST_LINES_OF_TEST_FILE = 600
MOST_NESTING = 3
VAGUE = re.compile(r"Manager|Helper|Utils?(?![a-z])|(^|_)(utils?|helpers?|common|misc)($|_)")
PLACE_OF_ONE_MACHINE = re.compile(r"(?<!\w)/(home|root|tmp|work|Users)/")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Branch = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Match


@dataclass(frozen=True, slots=True)
class Found:
    """What the rules are about, and where: a function or a class by its name."""

    file: str
    line: int
    kind: type[ast.AST]
    word: str
    lines: int = 0
    nesting: int = 0

    @property
    def is_production(self) -> bool:
        return self.file.startswith(tuple(f"{folder}/" for folder in PRODUCTION))


def python_files(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


@cache
def found() -> tuple[Found, ...]:
    """Of all files: each is read once for all rules, and its tree is let go."""
    gc.disable()  # it would look at all nodes of a tree again and again, of which none is waste
    try:
        return tuple(each for file in python_files(*FOLDERS) for each in found_in(*file))
    finally:
        gc.enable()


def found_in(file: str, text: str) -> Iterator[Found]:
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size = lines_of(node), nesting(node)
                yield Found(file, node.lineno, ast.FunctionDef, node.name, *size)
            case ast.ClassDef():
                yield Found(file, node.lineno, ast.ClassDef, node.name)
        waiting.extend(parts(node))


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The statements and cases right in it: functions and branches are in no expression."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(node, name, ())
        if isinstance(inside, list):
            yield from inside


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, but for the docstring."""
    end = function.end_lineno or function.lineno
    first = function.body[0]
    documentation = 0
    if ast.get_docstring(function) is not None:
        documentation = (first.end_lineno or first.lineno) - first.lineno + 1
    return end - function.lineno + 1 - documentation


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How deep branches and loops are nested; an `elif` is no deeper than its `if`."""
    deepest = depth
    for child in parts(node):
        if isinstance(child, Scope):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and [child] == node.orelse
        deeper = isinstance(child, Branch) and not is_elif
        deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


def test_functions_are_short() -> None:
    long = [
        f"{each.file}:{each.line} {each.word}: {each.lines} lines"
        for each in found()
        if each.lines > MOST_LINES_OF_FUNCTION
    ]
    assert not long


def test_functions_are_flat() -> None:
    deep = {
        f"{each.file}:{each.word}"
        for each in found()
        if each.is_production and each.nesting > MOST_NESTING
    }
    assert not deep


@pytest.mark.parametrize(
    ("folders", "most"),
    [
        (PRODUCTION, MOST_LINES_OF_FILE),
        (("benchmarks", "examples", "tests"), MOST_LINES_OF_TEST_FILE),
    ],
)
def test_files_are_short(folders: tuple[str, ...], most: int) -> None:
    long = {name: text.count("\n") for name, text in python_files(*folders)}
    assert not {name: lines for name, lines in long.items() if lines > most}


def test_names_say_what_a_thing_is() -> None:
    classes = (
        f"{each.file}: {each.word}"
        for each in found()
        if each.kind is ast.ClassDef and VAGUE.search(each.word)
    )
    files = (name for name, _ in python_files(*FOLDERS) if VAGUE.search(Path(name).stem))
    assert not [*classes, *files]


def test_packages_import_nothing() -> None:
    """Importing one room costs nothing of the others; OptunaHub's packages are one file each."""
    packages = (
        file
        for file in python_files(*FOLDERS)
        if file[0].endswith("__init__.py") and not file[0].startswith("examples/optunahub/")
    )
    assert [name for name, text in packages if text] == [FRONT]


def test_no_place_of_one_machine_is_named() -> None:
    places = [
        f"{name}:{number} {line.strip()}"
        for name, text in python_files(*PRODUCTION)
        for number, line in enumerate(text.splitlines(), 1)
        if PLACE_OF_ONE_MACHINE.search(line)
    ]
    assert not places


def test_every_fact_of_an_instance_has_a_name_of_its_own() -> None:
    """Two facts of one name would be read as each other, by the controller's tick too."""
    named: dict[str, set[str]] = {}
    for path in (ROOT / "autoscaler").rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            target = statement.target if isinstance(statement, ast.AnnAssign) else None
            if isinstance(statement, ast.Assign):
                (target,) = statement.targets
            value = getattr(statement, "value", None)
            if isinstance(target, ast.Name) and target.id.endswith("_FACT"):
                assert isinstance(value, ast.Constant)
                named.setdefault(value.value, set()).add(f"{path.name}: {target.id}")
    assert len(named) > 10
    assert {fact: where for fact, where in named.items() if len(where) > 1} == {}
