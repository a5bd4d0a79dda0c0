"""What controllers call a study: its name there, which no other study of theirs has ever had.

A study that is begun anew under an old name, its record gone from the storage or in another one,
is another study: what the earlier one cost and learnt is not its own. What a controller calls it
is noted in the study itself, by the controller's id, from the first run on.
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

_LONGEST_NAME: Final = 32  # leaves room for the number of a trial in the name of its job


def slug(study_name: str) -> str:
    """A study's name as controllers write names."""
    return _cut(re.sub(r"[^a-z0-9]+", "-", study_name.lower()).strip("-"), _LONGEST_NAME)


def names_of(study: optuna.Study) -> Mapping[str, str]:
    """What controllers call a study, by their ids, for those that have run it."""
    known: Mapping[str, str] = study.user_attrs.get(attributes.NAMES, {})
    return known


def name_at(study_name: str, names: Mapping[str, str], controller: str) -> str:
    """What a controller calls the study of that name, which has these `names`."""
    return names.get(controller, slug(study_name))


def settle_name(study: optuna.Study, controller: str, is_taken: Callable[[str], bool]) -> str:
    """What the controller of that id calls a study from now on.

    `is_taken` says whether it has ever known a study of some name.
    """
    names, plain = names_of(study), slug(study.study_name)
    if controller in names:
        return names[controller]
    name = plain
    for count in itertools.count(2):
        if not is_taken(name):
            break
        name = f"{_cut(plain, _LONGEST_NAME - len(str(count)) - 2)}-v{count}"
    if name != plain:
        _log.warning(
            "the controller knows an earlier study %r: this one is %s there, and what that one "
            "has cost and learnt does not count",
            study.study_name,
            name,
        )
    study.set_user_attr(attributes.NAMES, {**names, controller: name})
    return name


def is_known(view: Callable[[], object]) -> bool:
    """Whether a controller can show a study."""
    try:
        view()
    except NotFound:
        return False
    return True


def _cut(plain: str, length: int) -> str:
    return plain[:length].strip("-") or "study"
