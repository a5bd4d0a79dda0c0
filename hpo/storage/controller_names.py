"""Names of a study at controllers, each of which is unique at its controller.

A study that is created again under an old name is another study, so the earlier study's cost and
history do not count for it. The study itself stores its name at each controller, by the
controller's id.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

import optuna

from autoscaler.domain.errors import NotFound
from hpo.protocol import attributes

_log = logging.getLogger(__name__)

_LONGEST_NAME: Final = 32  # characters; job names add the number of the trial


def slug(study_name: str) -> str:
    """Return a study's name in the form of the controller's names."""
    return _cut(re.sub(r"[^a-z0-9]+", "-", study_name.lower()).strip("-"), _LONGEST_NAME)


def names_by_controller(study: optuna.Study) -> Mapping[str, str]:
    """Return the study's names at the controllers that have run it, by controller id."""
    known: Mapping[str, str] = study.user_attrs.get(attributes.NAMES, {})
    return known


def controller_name(study_name: str, names: Mapping[str, str], controller: str) -> str:
    """Return the name of a study at a controller; `names` are its stored names."""
    return names.get(controller, slug(study_name))


def assign_controller_name(
    study: optuna.Study, controller: str, is_taken: Callable[[str], bool]
) -> str:
    """Return the study's name at a controller, and store it in the study if it is new.

    `is_taken` returns whether the controller has ever known a study of a name.
    """
    names, base_name = names_by_controller(study), slug(study.study_name)
    if controller in names:
        return names[controller]
    name = base_name
    for count in itertools.count(2):
        if not is_taken(name):
            break
        name = f"{_cut(base_name, _LONGEST_NAME - len(str(count)) - 2)}-v{count}"
    if name != base_name:
        _log.warning(
            "the controller knows an earlier study %r: this one is %s there, and what that one "
            "has cost and learnt does not count",
            study.study_name,
            name,
        )
    study.set_user_attr(attributes.NAMES, {**names, controller: name})
    return name


def exists(view: Callable[[], object]) -> bool:
    """Return whether `view` finds the study at a controller."""
    try:
        view()
    except NotFound:
        return False
    return True


def _cut(text: str, length: int) -> str:
    return text[:length].strip("-") or "study"
