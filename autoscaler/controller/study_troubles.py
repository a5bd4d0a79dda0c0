"""What is wrong with studies: one study's trouble must not stop the others, nor the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from autoscaler.domain.errors import CastorError

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class StudyTroubles:
    """Does what is done for a study, and remembers what it failed at until it goes well again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def attempt(self, study: str, what: str, act: Callable[[], Value]) -> Value | None:
        """What `act` returns; None if it fails, which is logged once and is the study's trouble.

        `what` names it among all that is done for a study.
        """
        key = study, what
        try:
            value = act()
        except Exception as error:  # the edge of one study
            trouble = str(error) or type(error).__name__
            if self._known.get(key) != trouble:
                is_known = isinstance(error, CastorError)
                _log.error("study %s: %s", study, trouble, exc_info=None if is_known else error)
            self._known = {**self._known, key: trouble}  # others may be reading the old one
            return None
        if key in self._known:
            self._known = {each: words for each, words in self._known.items() if each != key}
            _log.info("study %s: its %s can be told again", study, what)
        return value

    def keep(self, studies: set[str]) -> None:
        """Forget what was wrong with others than these."""
        if any(study not in studies for study, _ in self._known):
            self._known = {key: words for key, words in self._known.items() if key[0] in studies}

    def by_study(self) -> Mapping[str, str]:
        """What is wrong now, by study."""
        return {study: words for (study, _), words in sorted(self._known.items())}
