"""A study's storage that is waited for while it is away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from optuna.exceptions import StorageInternalError

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock

_log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 600.0


class PatientStorage:
    """Passes everything on to a storage, and again as long as its database does not answer.

    What a sampler or pruner has begun is therefore never cut short: it draws its random numbers
    once. What is said again after the connection broke was perhaps heard the first time; only a
    trial that was to be created may then be there twice, one of them without an end.
    """

    def __init__(self, storage: Any, clock: Clock, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called before each new try."""
        self._storage = storage
        self._clock = clock
        self._on_wait = on_wait

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return self._patient(found) if callable(found) else found

    def _patient(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def patiently(*arguments: Any, **options: Any) -> Any:
            back_off = BackOff()
            while True:
                try:
                    return call(*arguments, **options)
                except RuntimeError:  # the trial is finished, in all versions' words
                    if back_off.waited_seconds == 0.0:
                        raise
                    return True  # what finished it was heard
                except StorageInternalError as error:
                    if back_off.waited_seconds > PATIENCE_SECONDS:
                        raise
                    wait_seconds = back_off.next_seconds()
                    _log.warning(
                        "the study's storage is away, again in %g s: %s", wait_seconds, error
                    )
                self._clock.sleep(wait_seconds)
                self._on_wait()

        return patiently
