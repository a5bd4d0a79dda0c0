"""Reading of YAML files that hold one form, and errors with the lines of their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from autoscaler.domain.errors import SpecError
from autoscaler.spec.forms import Form, Problem, keys_of, problems_of, refusal
from autoscaler.spec.located_yaml import LocatedYaml, read_yaml

POOLS_FILE: Final = "a file of pools (docs/aws.md, docs/gcp.md)"

AnyForm = TypeVar("AnyForm", bound=Form)


def read_text(path: Path, wanted: str = "a text file") -> str:
    """Read a text file in UTF-8.

    Args:
        path: the file.
        wanted: the kind of file that is expected, as the error names it: `a job file`.

    Raises:
        SpecError: the file can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {unreadable(error, wanted)}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not text in UTF-8: name {wanted}") from error


def unreadable(error: OSError, wanted: str) -> str:
    """Return why a file can't be read, with the kind of file to name instead."""
    if isinstance(error, FileNotFoundError):
        return f"no such file: name {wanted}"
    if isinstance(error, IsADirectoryError):
        return f"is a directory: name {wanted}"
    return f"can't be read: {error.strerror}"


def read_document(path: Path, wanted: str = "a YAML file") -> LocatedYaml:
    """Read the YAML document of a file. `wanted` is as for `read_text`.

    Raises:
        SpecError: the file can't be read, or is not YAML.
    """
    return read_yaml(read_text(path, wanted), str(path))


def validated(
    document: LocatedYaml, form: type[AnyForm], context: Mapping[str, Any] | None = None
) -> AnyForm:
    """Validate a document as a form.

    Args:
        document: the YAML document.
        form: class of the form.
        context: context of pydantic's validators.

    Raises:
        SpecError: the document does not fit the form. The message has a line for each problem:
            file, line number, key, problem and remedy; `field` is the first key.
    """
    if not isinstance(document.value, dict):
        required = keys_of(form, required=True)
        known = f"at least {listed(required)}" if required else f"{listed(keys_of(form))}"
        empty = "is empty: it " if document.root is None else ""
        raise SpecError(f"{document.origin}: {empty}must be a mapping with {known}")
    try:
        return form.model_validate(document.value, context=dict(context or {}))
    except ValidationError as error:
        raise located(problems_of(error, form), document) from error


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def located(problems: Sequence[Problem], document: LocatedYaml) -> SpecError:
    """Return an error with a line for each problem: file, line number, key and message.

    Keys that a short form only implies are left out of the path.
    """
    shown_problems, lines = [], []
    for problem in problems:
        depth, line = document.locate(problem.path)
        path = problem.path if problem.is_absence else problem.path[:depth]
        shown_problems.append(Problem(path, problem.message))
        key = f"{shown_problems[-1].field}: " if shown_problems[-1].field.strip() else ""
        lines.append(f"{document.origin}:{line}: {key}{problem.message}")
    return refusal(shown_problems, lines)
