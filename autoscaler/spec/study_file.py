"""Study files: YAML with search space, methods and the job of a trial (docs/study-file.md)."""

from __future__ import annotations

from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import StudySpec
from autoscaler.domain.study_rules import require_valid_study
from autoscaler.spec.form_file import located, read_document, validated
from autoscaler.spec.forms import Problem, problem_of
from autoscaler.spec.study_form import StudyForm


def load_study(path: Path, now_seconds: float) -> tuple[StudySpec, Path]:
    """Read a study file, and return the study and its working directory.

    Args:
        path: the file.
        now_seconds: seconds since the Unix epoch, from which deadlines such as ``2h`` count.

    Raises:
        SpecError: as `load_job`.
    """
    document = read_document(path, "a study file (docs/study-file.md)")
    form = validated(document, StudyForm, {"now_seconds": now_seconds})
    directory = path.resolve().parent / Path(form.working_directory).expanduser()
    if not directory.is_dir():
        problem = Problem(("working_directory",), f'"{directory}" is not a directory')
        raise located([problem], document)
    study = form.study()
    try:
        require_valid_study(study)
    except SpecError as error:
        raise located([problem_of(error)], document) from None
    return study, directory.resolve()
