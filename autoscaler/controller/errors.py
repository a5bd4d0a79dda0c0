"""Errors of activities for jobs or studies, kept until the same activity succeeds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from autoscaler.domain.errors import CastorError

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class ErrorRecord:
    """Record of failed activities, by subject (job or study).

    A failure for one subject never affects the others or the controller.
    """

    def __init__(self, kind: str) -> None:
        """Start an empty record; `kind` names the subjects in log lines: "job" or "study"."""
        self._kind = kind
        self._lock = (
            threading.Lock()
        )  # for writers, also in workers; readers take the whole mapping
        self._known: dict[tuple[str, str], str] = {}

    def attempt(self, subject: str, activity: str, act: Callable[[], Value]) -> Value | None:
        """Call `act` and return its result; on failure record and log the error, and return None.

        The same error is logged once.

        Args:
            subject: the id of the job or the name of the study.
            activity: the name of `act` among all activities for a subject.
            act: the activity.
        """
        key = subject, activity
        try:
            value = act()
        except Exception as error:  # a failure for one subject must not reach the others
            self._record(key, error)
            return None
        if key in self._known:
            with self._lock:
                self._known = {known: text for known, text in self._known.items() if known != key}
            text, fields = "%s %s: %s succeeds again", {self._kind: subject}
            _log.info(text, self._kind, subject, activity, extra=fields)
        return value

    def _record(self, key: tuple[str, str], error: Exception) -> None:
        subject, activity = key
        is_known = isinstance(error, CastorError)
        text = str(error) if is_known else f"{activity} failed: {error_text(error)}"
        if self._known.get(key) == text:
            return
        with self._lock:
            self._known = {**self._known, key: text}
        cause, fields = None if is_known else error, {self._kind: subject}
        _log.error("%s %s: %s", self._kind, subject, text, exc_info=cause, extra=fields)

    def keep(self, subjects: Collection[str]) -> None:
        """Forget the failures of all other subjects."""
        if any(subject not in subjects for subject, _ in self._known):
            with self._lock:
                known = self._known.items()
                self._known = {key: text for key, text in known if key[0] in subjects}

    def by_subject(self) -> Mapping[str, str]:
        """Return the present failures as text, by subject."""
        return {subject: text for (subject, _), text in sorted(self._known.items())}


def error_text(error: Exception) -> str:
    """Return an error as text, with its type unless Castor raised it."""
    if isinstance(error, CastorError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
