"""Retries with back-off while the controller or the storage of a study is unavailable."""

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

MAXIMUM_OUTAGE_SECONDS: Final = 600.0


def retry_until_available(
    act: Callable[[], Value], clock: Clock, on_wait: Callable[[], None] = lambda: None
) -> Value:
    """Return the result of `act`, called again while the controller is unavailable.

    `on_wait` is called before each wait.

    Raises:
        Unavailable: the controller was unavailable for `MAXIMUM_OUTAGE_SECONDS`.
    """
    back_off = BackOff()
    while True:
        try:
            return act()
        except Unavailable as error:
            if back_off.waited_seconds > MAXIMUM_OUTAGE_SECONDS:
                raise
            limit_text = (
                ""
                if back_off.waited_seconds
                else f" (retrying for {MAXIMUM_OUTAGE_SECONDS / 60:.0f} minutes)"
            )
            wait_seconds = back_off.next_seconds()
            _log.warning(
                "the controller is unavailable%s; next attempt in %g s: %s",
                limit_text,
                wait_seconds,
                error,
            )
            on_wait()
            clock.sleep(wait_seconds)


class RetryingStorage:
    """Proxy of a storage that repeats calls while the database is unavailable.

    A call of a sampler or pruner therefore never fails halfway, and random numbers are drawn once.
    A repeated write may have succeeded the first time. Only a trial that a user enqueues may then
    exist twice.
    """

    def __init__(self, storage: Any, clock: Clock, on_wait: Callable[[], None]) -> None:
        """Wrap `storage`; `on_wait` is called before each retry."""
        self._storage = storage
        self._clock = clock
        self._on_wait = on_wait

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._storage, name)
        return self._retrying(attribute) if callable(attribute) else attribute

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Create a trial; a retry finds the trial of an earlier attempt.

        A new trial has a placeholder for its job's name from the start. If the driver dies before
        it submits the job, the next driver recognises the trial and begins it.
        """
        template = template_trial or create_trial(
            state=TrialState.RUNNING, user_attrs={JOB: f"new-{secrets.token_hex(8)}"}
        )
        key = RETRY_OF if RETRY_OF in template.user_attrs else JOB
        name = template.user_attrs.get(key)

        def find_created() -> int | None:
            for trial in self._storage.get_all_trials(study_id, deepcopy=False):
                if name is not None and trial.user_attrs.get(key) == name:
                    return trial_id(trial)
            return None

        created: int = self._retrying(self._storage.create_new_trial, find_created)(
            study_id, template
        )
        return created

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Set the state of a trial; a retry accepts the state that an earlier attempt has set."""

        def is_set() -> bool | None:
            return self._storage.get_trial(trial_id).state is state or None

        call = self._retrying(self._storage.set_trial_state_values, is_set)
        return bool(call(trial_id, state, values))

    def _retrying(
        self, call: Callable[..., Any], find_earlier_result: Callable[[], Any] = lambda: None
    ) -> Callable[..., Any]:
        """Return `call` with retries.

        `find_earlier_result` returns the result of an attempt whose response was lost, or None.
        """

        @wraps(call)
        def call_with_retries(*arguments: Any, **options: Any) -> Any:
            back_off = BackOff()
            while True:
                try:
                    result = find_earlier_result() if back_off.waited_seconds > 0 else None
                    return call(*arguments, **options) if result is None else result
                except (StorageInternalError, OSError) as error:
                    if back_off.waited_seconds > MAXIMUM_OUTAGE_SECONDS:
                        raise _outage_error(error) from error
                    wait_seconds = back_off.next_seconds()
                    _log.warning(
                        "the study's storage is unavailable; next attempt in %g s: %s",
                        wait_seconds,
                        one_line(error),
                    )
                self._clock.sleep(wait_seconds)
                self._on_wait()

        return call_with_retries


def _outage_error(error: Exception) -> StoreError:
    return StoreError(
        f"storage: unavailable for {MAXIMUM_OUTAGE_SECONDS / 60:.0f} minutes: "
        f"{one_line(error)}: run the study again later; it continues its trials"
    )


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the additions of databases."""
    cause = error.__cause__ or error
    return next(iter(str(cause).splitlines()), type(cause).__name__)
