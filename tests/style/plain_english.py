"""Check of docstrings, comments and names for plain technical English.

The check covers the product and the tests. Names in test modules are checked only in the folders
that authors of plug-ins read.

    python -m tests.style.plain_english             findings beyond the allowed ones; exit 1 if any
    python -m tests.style.plain_english FILES...    all findings of these files
    python -m tests.style.plain_english --shrink    lower the allowed counts to the real ones

Counts of older findings that are still allowed are in `plain_english.toml`, by file.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKED = ("autoscaler", "hpo", "providers", "tests")
# Folders of tests whose test modules have checked names, too.
SHARED_TESTS = ("tests/builders", "tests/conformance", "tests/end_to_end", "tests/fakes")
ALLOWED = Path(__file__).with_suffix(".toml")

# Words with which a docstring hides its subject: a noun phrase or a verb comes first.
HIDDEN_SUBJECTS = re.compile(
    r"(What|How|Of|Those|That|These|This|Who|Whom|Whose|Whoever|Which|Where|As|When|While|If|Once"
    r"|From|With|Without|By|So|Such|In|On(?!-)|Into|To|At|For|About|Nothing|Nobody|None that"
    r"|It|They)\b"
)
# Pronouns that begin a later sentence of a docstring, in place of the name of a thing.
PRONOUNS = re.compile(
    r"(Who|Whom|Whose|Whoever|What|Those|He|She|Nobody|Somebody|So (?:is|does|do|are|has))\b"
)
METAPHORS = re.compile(
    r"\b(reckon\w*|whoever|whomever|of whom|hereafter|foretold|forsaken|forsak\w+|beheld|therein"
    r"|thereof|wherein|so be it|purses?|parcels?|bells?|farewells?|keepers?|crews?|depots?"
    r"|desks?|leftovers?|upkeep|at the door|is nobody's|comes? to nothing|has come so far"
    r"|is told of|are told of|is by far|who waits|who is put|lies fallow|henceforth)\b",
    re.IGNORECASE,
)
METAPHORS_IN_NAMES = frozenset(
    (
        *("bell", "bells", "crew", "crews", "depot", "depots", "desk", "desks", "farewell"),
        *("hereafter", "keeper", "keepers", "leftover", "leftovers", "lingering", "parcel"),
        *("parcels", "purse", "purses", "upkeep", "wishes"),
    )
)
# Names that say nothing about the value that they hold.
EMPTY_NAMES = frozenset(
    (
        *("each", "found", "it", "one", "own", "such", "that", "them", "this", "those", "told"),
        *("what", "which", "who", "whom"),
    )
)
SENTENCE = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]`))\s+(?=[A-Z])|\n\s*\n")
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass(frozen=True, slots=True)
class Finding:
    """Place in a file whose words break a rule."""

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def checked_files() -> list[Path]:
    """Return the Python files of the product and of the tests, in order."""
    return [path for folder in CHECKED for path in sorted((ROOT / folder).rglob("*.py"))]


def has_checked_names(path: Path) -> bool:
    """Return whether the names in a file are checked."""
    shared = any(path.is_relative_to(ROOT / folder) for folder in SHARED_TESTS)
    return shared or not path.name.startswith("test_")


def findings_in(path: Path, with_names: bool = True) -> list[Finding]:
    """Return the findings of a Python file, in the order of its lines."""
    source = path.read_text()
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    findings = [
        Finding(file, line, rule, text)
        for check in (_docstrings, *((_names,) if with_names else ()))
        for line, rule, text in check(ast.parse(source))
    ]
    findings += [Finding(file, line, rule, text) for line, rule, text in _comments(source)]
    return sorted(findings, key=lambda finding: finding.line)


def problems_of_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield rule and quotation for each problem of a text that people read."""
    sentences = [sentence.strip() for sentence in SENTENCE.split(text.strip()) if sentence.strip()]
    if sentences and HIDDEN_SUBJECTS.match(sentences[0]):
        yield "opens with a hidden subject", _start(sentences[0])
    for sentence in sentences[1:]:
        if PRONOUNS.match(sentence):
            yield "a pronoun in place of a name", _start(sentence)
    for match in METAPHORS.finditer(text):
        yield "not a term of the field", match[0]


def _start(text: str) -> str:
    """Return the first characters of a text, on one line."""
    return " ".join(text.split())[:70]


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and quotation for docstrings of modules, classes, functions and fields."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            for rule, quotation in problems_of_text(text):
                yield node.body[0].lineno, rule, quotation


def _comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and quotation for comments with words that are no terms of the field."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for match in METAPHORS.finditer(token.string):
                yield token.start[0], "not a term of the field", match[0]


def _names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and name for bindings, parameters and definitions that say nothing."""
    for node in ast.walk(tree):
        name = _bound_name(node)
        if name is None:
            continue
        line = getattr(node, "lineno", 1)
        if name in EMPTY_NAMES:
            yield line, "the name says nothing of its value", name
        words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
        if words & METAPHORS_IN_NAMES:
            yield line, "the name is no term of the field", name


def _bound_name(node: ast.AST) -> str | None:
    """Return the name that a node binds; None if it binds none."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case (
            ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name)
        ):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name):
            return name
    return None


def allowed() -> dict[str, int]:
    """Return the number of findings that each file may still have."""
    counts: dict[str, int] = tomllib.loads(ALLOWED.read_text())["findings"]
    return counts


def write_allowed(counts: dict[str, int]) -> None:
    """Write the counts above zero as the allowed ones."""
    lines = [f'"{file}" = {count}\n' for file, count in sorted(counts.items()) if count]
    head = "# Findings of plain_english.py that a file may still have. Counts only shrink.\n"
    ALLOWED.write_text(head + "[findings]\n" + "".join(lines))


def findings_by_file() -> dict[str, list[Finding]]:
    """Return the findings of each checked file."""
    return {
        path.relative_to(ROOT).as_posix(): findings_in(path, has_checked_names(path))
        for path in checked_files()
    }


def excess(by_file: dict[str, list[Finding]], counts: dict[str, int]) -> list[Finding]:
    """Return the findings of the files that have more of them than allowed."""
    return [
        finding
        for file, findings in by_file.items()
        if len(findings) > counts.get(file, 0)
        for finding in findings
    ]


def main() -> int:
    """Print findings; return 1 if files have more than allowed, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shrink", action="store_true", help="lower the allowed counts")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    if options.files:
        findings = [place for path in options.files for place in findings_in(path.resolve())]
    else:
        by_file, counts = findings_by_file(), allowed()
        if options.shrink:
            counts = {
                file: min(counts.get(file, 0), len(by_file.get(file, []))) for file in counts
            }
            write_allowed(counts)
        findings = excess(by_file, counts)
    for finding in findings:
        print(finding)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
