"""Files that hold one form: how they are read, and how what is wrong with them is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from autoscaler.domain.errors import SpecError
from autoscaler.spec.forms import Form, Problem, problems_of, refusal
from autoscaler.spec.located_yaml import LocatedYaml, read_yaml

AnyForm = TypeVar("AnyForm", bound=Form)


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        SpecError: it can't be read, or is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not text in UTF-8") from error


def read_document(path: Path) -> LocatedYaml:
    """The YAML document that a file holds.

    Raises:
        SpecError: the file can't be read, or is no YAML.
    """
    return read_yaml(read_text(path), str(path))


def validated(
    document: LocatedYaml, form: type[AnyForm], context: Mapping[str, Any] | None = None
) -> AnyForm:
    """The document as a form.

    Raises:
        SpecError: it is no such form. Every problem is a line with the file, the line number, the
            key, what is wrong and what was meant; `field` is the first key.
    """
    if not isinstance(document.value, dict):
        wanted = [name for name, field in form.model_fields.items() if field.is_required()]
        raise SpecError(
            f"{document.origin}: must be a mapping with at least {' and '.join(wanted)}"
        )
    try:
        return form.model_validate(document.value, context=dict(context or {}))
    except ValidationError as error:
        raise located(problems_of(error, form), document) from error


def located(problems: Sequence[Problem], document: LocatedYaml) -> SpecError:
    """The problems with the line of each, and without what a short form only implies."""
    told, lines = [], []
    for problem in problems:
        depth, line = document.locate(problem.path)
        path = problem.path if problem.is_absence else problem.path[:depth]
        told.append(Problem(path, problem.message))
        key = f"{told[-1].field}: " if told[-1].field.strip() else ""
        lines.append(f"{document.origin}:{line}: {key}{problem.message}")
    return refusal(told, lines)
