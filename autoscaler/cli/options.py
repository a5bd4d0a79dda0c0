"""Options and arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from typer import Argument, BadParameter, Option

from autoscaler.cli.completion import job_names
from autoscaler.domain.text import did_you_mean, quoted

Word = TypeVar("Word", bound=StrEnum)

Json = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
JobName = Annotated[
    str, Argument(help="Name or id of a job.", metavar="JOB", autocompletion=job_names)
]
Yes = Annotated[bool, Option("-y", "--yes", help="Do it without asking.")]
Store = Annotated[str | None, Option(help="URL of the database; default: SQLite in --state.")]


class LogFormat(StrEnum):
    """Form of a log's lines."""

    TEXT = "text"
    JSON = "json"


def words_of(kind: type[Word]) -> dict[str, Any]:
    """Return the settings of an option or argument that takes a word of an enumeration.

    The words are completed in a shell, and one that is none of them is refused with a similar one.
    """
    words = [word.value for word in kind]
    return {
        "parser": _word_parser(kind),
        "autocompletion": lambda incomplete: [w for w in words if w.startswith(incomplete)],
    }


def _word_parser(kind: type[Word]) -> Callable[[str], Word]:
    def parse(text: str) -> Word:
        words = [word.value for word in kind]
        if text in words:
            return kind(text)
        hint = did_you_mean(text, words, f"choose one of {', '.join(words)}")
        raise BadParameter(f"{quoted(text)} is no choice: {hint}")

    return parse
