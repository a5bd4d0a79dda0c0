"""Reading of YAML files that hold one form, and errors with the lines of their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from autoscaler.domain.errors import SpecError
from autoscaler.spec.forms import Form, Problem, keys_of, problems_of, refusal
from autoscaler.spec.located_yaml import LocatedYaml, read_yaml

AnyForm = TypeVar("AnyForm", bound=Form)


def read_text(path: Path) -> str:
    """Read a text file in UTF-8.

    Raises:
        SpecError: the file can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not text in UTF-8") from error


def read_document(path: Path) -> LocatedYaml:
    """Read the YAML document of a file.

    Raises:
        SpecError: the file can't be read, or is not YAML.
    """
    return read_yaml(read_text(path), str(path))


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
        required = " and ".join(keys_of(form, required=True))
        raise SpecError(f"{document.origin}: must be a mapping with at least {required}")
    try:
        return form.model_validate(document.value, context=dict(context or {}))
    except ValidationError as error:
        raise located(problems_of(error, form), document) from error


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
