"""A controller, or a study's storage, that is waited for while it is away."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import StoreError, Unavailable
from hpo.optuna_internals import trial_id
from hpo.protocol.attributes import JOB, RETRY_OF

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

PATIENCE_SECONDS: Final = 600.0


def patiently(
    act: Callable[[], Value], clock: Clock, on_wait: Callable[[], None] = lambda: None
) -> Value:
    """What `act` returns; it is done again as long as the controller is away.

    `on_wait` is called before each wait.

    Raises:
        Unavailable: it was so for too long.
    """
    back_off = BackOff()
    while True:
        try:
            return act()
        except Unavailable as error:
            if back_off.waited_seconds > PATIENCE_SECONDS:
                raise
            most = "" if back_off.waited_seconds else f" (for {PATIENCE_SECONDS / 60:.0f} minutes)"
            wait_seconds = back_off.next_seconds()
            _log.warning(
                "the controller is away and waited for%s, again in %g s: %s",
                most,
                wait_seconds,
                error,
            )
            on_wait()
            clock.sleep(wait_seconds)


class PatientStorage:
    """Passes everything on to a storage, and again as long as its database does not answer.

    What a sampler or pruner has begun is therefore never cut short: it draws its random numbers
    once. What is said again after the connection broke was perhaps heard the first time; only a
    trial that a user enqueued may then be there twice.
    """

    def __init__(self, storage: Any, clock: Clock, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called before each new try."""
        self._storage = storage
        self._clock = clock
        self._on_wait = on_wait

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return self._patient(found) if callable(found) else found

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """As the storage's; what was heard is not there twice.

        A new trial has a job's name from the start, of one that never was: if the driver dies as
        it begins it, the next one knows that it is ours, and begins it.
        """
        template = template_trial or create_trial(
            state=TrialState.RUNNING, user_attrs={JOB: f"new-{secrets.token_hex(8)}"}
        )
        key = RETRY_OF if RETRY_OF in template.user_attrs else JOB
        name = template.user_attrs.get(key)

        def heard() -> int | None:
            for trial in self._storage.get_all_trials(study_id, deepcopy=False):
                if name is not None and trial.user_attrs.get(key) == name:
                    return trial_id(trial)
            return None

        made: int = self._patient(self._storage.create_new_trial, heard)(study_id, template)
        return made

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """As the storage's; what was heard, to begin a trial or to finish it, is done."""

        def is_so() -> bool | None:
            return self._storage.get_trial(trial_id).state is state or None

        call = self._patient(self._storage.set_trial_state_values, is_so)
        return bool(call(trial_id, state, values))

    def _patient(
        self, call: Callable[..., Any], heard: Callable[[], Any] = lambda: None
    ) -> Callable[..., Any]:
        """The call, repeated while the storage is away, unless `heard` says what came of it."""

        @wraps(call)
        def patiently(*arguments: Any, **options: Any) -> Any:
            back_off = BackOff()
            while True:
                try:
                    result = heard() if back_off.waited_seconds > 0 else None
                    return call(*arguments, **options) if result is None else result
                except (StorageInternalError, OSError) as error:
                    if back_off.waited_seconds > PATIENCE_SECONDS:
                        raise _given_up(error) from error
                    wait_seconds = back_off.next_seconds()
                    _log.warning(
                        "the study's storage is away, again in %g s: %s",
                        wait_seconds,
                        one_line(error),
                    )
                self._clock.sleep(wait_seconds)
                self._on_wait()

        return patiently


def _given_up(error: Exception) -> StoreError:
    return StoreError(
        f"storage: the study's is away for {PATIENCE_SECONDS / 60:.0f} minutes: "
        f"{one_line(error)}: run it again when it is back, and it goes on where it was"
    )


def one_line(error: BaseException) -> str:
    """What an error says, without what databases say beside it."""
    cause = error.__cause__ or error
    return next(iter(str(cause).splitlines()), type(cause).__name__)
