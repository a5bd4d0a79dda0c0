"""Rules of CONTRIBUTING.md about sizes, nesting and names that ruff does not check."""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
REVIEWED = Path(__file__).with_name("review.toml")
PRODUCTION = ("autoscaler", "hpo", "providers")
FOLDERS = (*PRODUCTION, "benchmarks", "examples", "tests")

# Above these a file or function is in review.toml, with the reason. A long file about
# one thing is better than several that import each other.
LINES_OF_FUNCTION = 60
LINES_OF_FILE = 500
# A module below this that one other module imports is folded into that one, or reviewed.
LINES_OF_MODULE = 40
MOST_NESTING = 3
VAGUE = re.compile(r"Manager|Helper|Utils?(?![a-z])|(^|_)(utils?|helpers?|common|misc)($|_)")
PLACE_OF_ONE_MACHINE = re.compile(r"(?<!\w)/(home|root|tmp|work|Users)/")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Branch = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Match


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a function or a class; lines and nesting are 0 for a class."""

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
def definitions() -> tuple[Definition, ...]:
    """Return the definitions in all files. Each file is parsed once for all rules."""
    gc.disable()  # it would visit all nodes of each tree repeatedly, and find no garbage
    try:
        return tuple(part for file in python_files(*FOLDERS) for part in definitions_in(*file))
    finally:
        gc.enable()


def definitions_in(file: str, text: str) -> Iterator[Definition]:
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size = lines_of(node), nesting(node)
                yield Definition(file, node.lineno, ast.FunctionDef, node.name, *size)
            case ast.ClassDef():
                yield Definition(file, node.lineno, ast.ClassDef, node.name)
        waiting.extend(parts(node))


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and cases directly in a node; expressions hold no functions."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(node, name, ())
        if isinstance(inside, list):
            yield from inside


def lines_of(function: Function) -> int:
    """Return the lines from `def` to the end, without the docstring."""
    end = function.end_lineno or function.lineno
    first = function.body[0]
    documentation = 0
    if ast.get_docstring(function) is not None:
        documentation = (first.end_lineno or first.lineno) - first.lineno + 1
    return end - function.lineno + 1 - documentation


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return the depth of nested branches and loops; an `elif` is as deep as its `if`."""
    deepest = depth
    for child in parts(node):
        if isinstance(child, Scope):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and [child] == node.orelse
        deeper = isinstance(child, Branch) and not is_elif
        deepest = max(deepest, nesting(child, depth + deeper))
    return deepest


def reviewed(kind: str) -> set[str]:
    """Return the entries of a kind in review.toml; each has its reason there."""
    reasons: dict[str, str] = tomllib.loads(REVIEWED.read_text())[kind]
    assert all(reasons.values())
    return set(reasons)


def test_long_functions_are_reviewed() -> None:
    long = {
        f"{definition.file}:{definition.word}"
        for definition in definitions()
        if definition.lines > LINES_OF_FUNCTION
    }
    assert long - reviewed("functions") == set()


def test_functions_are_flat() -> None:
    deep = {
        f"{definition.file}:{definition.word}"
        for definition in definitions()
        if definition.is_production and definition.nesting > MOST_NESTING
    }
    assert not deep


def test_long_files_are_reviewed() -> None:
    long = {name for name, text in python_files(*FOLDERS) if text.count("\n") > LINES_OF_FILE}
    assert long - reviewed("files") == set()


def modules_that_import() -> dict[str, set[str]]:
    """Return the files of the product that import each of its modules, by dotted name."""
    importers: dict[str, set[str]] = {}
    for file, text in python_files(*PRODUCTION):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                for name in (node.module, *names):
                    importers.setdefault(name, set()).add(file)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importers.setdefault(alias.name, set()).add(file)
    return importers


def test_small_modules_are_folded_into_their_only_importer() -> None:
    importers = modules_that_import()
    small = {
        file
        for file, text in python_files(*PRODUCTION)
        if 0 < text.count("\n") < LINES_OF_MODULE
        and not file.endswith("__init__.py")
        and len(importers.get(file.removesuffix(".py").replace("/", "."), ())) == 1
    }
    assert small - reviewed("small_modules") == set()


def test_names_say_what_a_thing_is() -> None:
    classes = (
        f"{definition.file}: {definition.word}"
        for definition in definitions()
        if definition.kind is ast.ClassDef and VAGUE.search(definition.word)
    )
    files = (name for name, _ in python_files(*FOLDERS) if VAGUE.search(Path(name).stem))
    assert not [*classes, *files]


def test_no_place_of_one_machine_is_named() -> None:
    places = [
        f"{name}:{number} {line.strip()}"
        for name, text in python_files(*PRODUCTION)
        for number, line in enumerate(text.splitlines(), 1)
        if PLACE_OF_ONE_MACHINE.search(line)
    ]
    assert not places
