"""Plain English in the texts that users read: help, errors, and reasons of decisions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.style.plain_english import METAPHORS

ROOT = Path(__file__).parents[2]
# A text names its subject before anything else. Texts are fragments: a preposition may open one.
HIDDEN_SUBJECTS = re.compile(
    r"(What|How|Who|Whom|Whose|Whoever|Those|That which|Nobody|Nothing)\b"
)
PERSONS = re.compile(
    r"\b(wants?|tells?|told|asks? for itself|comes? to|hears?|lives?|dwells?)\b",
    re.IGNORECASE,
)
HELP = ("autoscaler/cli",)
ERRORS = ("autoscaler", "hpo", "providers")
REASONS = ("autoscaler/economics/explanation", "autoscaler/economics/studies")


def files(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string or f-string, `{}` for each value; None if it is neither."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
    return None


def texts_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings in a node, but for docstrings and parts of f-strings."""
    if (text := text_of(node)) is not None:
        yield getattr(node, "lineno", 0), text
        return
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_docstring:
            yield from texts_in(child)


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of the help of options, arguments and commands."""
    for file, tree in files(*HELP):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in {"help", "short_help", "epilog"}:
                for line, text in texts_in(node.value):
                    yield f"{file}:{line}", text


def error_texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of the messages with which the product raises errors."""
    for file, tree in files(*ERRORS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.exc is not None:
                for line, text in texts_in(node.exc):
                    yield f"{file}:{line}", text


def reason_texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of what explains decisions: strings of two words or more."""
    for file, tree in files(*REASONS):
        for line, text in texts_in(tree):
            if " " in text.strip():
                yield f"{file}:{line}", text


SOURCES = (help_texts, error_texts, reason_texts)


@pytest.mark.parametrize(("source", "least"), list(zip(SOURCES, (100, 900, 100), strict=True)))
def test_texts_name_their_subject_in_terms_of_the_field(source: object, least: int) -> None:
    assert callable(source)
    texts = list(source())
    assert len(texts) > least
    problems = [
        f"{place}: {text}"
        for place, text in texts
        if HIDDEN_SUBJECTS.match(text) or METAPHORS.search(text) or PERSONS.search(text)
    ]
    assert problems == []


def test_the_check_finds_a_text_without_a_subject() -> None:
    tree = ast.parse('raise SpecError(f"What {name} holds is not known", "key")')
    ((_, text), (_, field)) = texts_in(tree)
    assert HIDDEN_SUBJECTS.match(text)
    assert (text, field) == ("What {} holds is not known", "key")
