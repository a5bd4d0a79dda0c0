"""Epoch loop whose state survives the loss of an instance."""

from __future__ import annotations

import io
import logging
import os
import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import optuna
from optuna.trial import BaseTrial

from autoscaler.domain.errors import CheckpointError, NotFound, ProviderError, SpecError
from autoscaler.objects import Objects
from hpo.protocol import attributes
from hpo.protocol.attributes import checkpoint_name
from hpo.worker.trial import RemoteTrial

_log = logging.getLogger(__name__)


def epochs(trial: BaseTrial, count: int, state: Mapping[str, Any] | None = None) -> Iterator[int]:
    """Yield the remaining epochs of a trial, from 0 to `count` - 1.

    With a `state`, the state is saved after each epoch but the last. If the objective is
    restarted, on any instance, the state is restored and the epochs continue after it. The random
    states of Python, NumPy and PyTorch are restored too. A draining instance ends after an epoch,
    or while `trial.should_prune` waits for other trials; the rest of the loop's body is then
    skipped. Without Castor, or without a state, this is `range(count)`.

    Args:
        trial: the objective's trial.
        count: total number of epochs of the objective.
        state: objects that change from epoch to epoch, by name. They have `state_dict` and
            `load_state_dict`, as models and optimizers of PyTorch do, or `clear` and `update`, as
            dictionaries do.

    Raises:
        SpecError: a part of the state can't be restored.
        CheckpointError: the state can't be saved or read.
    """
    if state is not None:
        _check(state)
    if isinstance(trial, RemoteTrial):  # facts for the planner
        record_attribute(trial, attributes.STEPS, count)
        if trial.is_shared:
            state = None  # the session keeps the state
        record_attribute(trial, attributes.PAUSES, state is not None)
    if state is None or not isinstance(trial, RemoteTrial) or trial.context is None:
        yield from range(count)
        return
    context, trial.keeps_states = trial.context, True
    file = context.checkpoint_directory() / f"{trial_state_name(trial)}.checkpoint"
    remote_checkpoints = context.remote_checkpoints()

    def save_and_exit(epochs_done: int) -> NoReturn:
        _save(file, _SavedState(epochs_done, _parts(state), _random_states(), is_asking=True))
        _upload(file, remote_checkpoints)
        context.report_left()
        raise SystemExit(0)

    _download(file, remote_checkpoints)
    first, is_asking = _restore(file, state)
    if is_asking:
        trial.leave = partial(save_and_exit, first)
        if trial.should_prune():
            raise optuna.TrialPruned
    for epoch in range(first, count):
        trial.leave = partial(save_and_exit, epoch + 1) if epoch + 1 < count else None
        yield epoch
        if epoch + 1 < count:
            _save(file, _SavedState(epoch + 1, _parts(state), _random_states()))
            is_kept = _upload_if_possible(file, remote_checkpoints)
            context.report_steps(epoch + 1)
            if context.must_drain and not is_kept:
                _upload(file, remote_checkpoints)
            if context.must_drain:
                context.report_left()
                raise SystemExit(0)


def record_attribute(trial: RemoteTrial, attribute: str, value: int) -> None:
    """Set a user attribute that the planner reads, unless it has that value already."""
    if trial.user_attrs.get(attribute) != value:
        trial.set_user_attr(attribute, value)


def trial_state_name(trial: RemoteTrial) -> str:
    """Return the name of a trial's state, unique among all studies that had its study's name."""
    return checkpoint_name(trial.number, trial.datetime_start)


@dataclass(frozen=True, slots=True)
class _SavedState:
    """Content of a state file."""

    epochs: int
    parts: dict[str, Any]
    random_states: dict[str, Any]
    is_asking: bool = False


class _StateReader(pickle.Unpickler):
    """Reader of state files, also of those that earlier versions wrote."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class of that name; the class of states had another name before."""
        if (module, name) == ("hpo.epochs", "_Saved"):
            return _SavedState
        return super().find_class(module, name)


def _check(state: Mapping[str, Any]) -> None:
    for name, part in state.items():
        if not (_has(part, "state_dict", "load_state_dict") or _has(part, "clear", "update")):
            raise SpecError(
                f"{type(part).__name__} can't be put back: give something with state_dict and "
                "load_state_dict, or a dictionary",
                f"state.{name}",
            )


def _has(part: Any, *names: str) -> bool:
    return all(hasattr(part, name) for name in names)


def _restore(file: Path, state: Mapping[str, Any]) -> tuple[int, bool]:
    """Restore the saved state.

    Returns:
        The first remaining epoch, and whether the pruner must be asked first, since the trial
        drained while it waited for the answer.
    """
    try:
        saved: _SavedState = _StateReader(io.BytesIO(file.read_bytes())).load()
    except FileNotFoundError:
        return 0, False
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
        raise CheckpointError(f"{file} can't be read: {error}") from error
    for name, part in state.items():
        if name not in saved.parts:
            raise CheckpointError(f"{file} holds no {name!r}: the objective has changed")
        if _has(part, "load_state_dict"):
            part.load_state_dict(saved.parts[name])
        else:
            part.clear()
            part.update(saved.parts[name])
    _restore_random_states(saved.random_states)
    return saved.epochs, saved.is_asking


def _parts(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: part.state_dict() if _has(part, "state_dict") else part.copy()
        for name, part in state.items()
    }


def _save(file: Path, saved: _SavedState) -> None:
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as out:
            pickle.dump(saved, out)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except (OSError, pickle.PicklingError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} can't be written: {error}") from error


def _download(file: Path, remote_checkpoints: Objects | None) -> None:
    """Download the state file from the remote store; remove `file` if the store has none."""
    if remote_checkpoints is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        remote_checkpoints.download(file.name, file)
    except NotFound:
        file.unlink(missing_ok=True)
    except (OSError, ProviderError) as error:
        raise CheckpointError(
            f"{remote_checkpoints.place}/{file.name} can't be read: {error}"
        ) from error


def _upload(file: Path, remote_checkpoints: Objects | None) -> None:
    """Upload the state file to the remote store."""
    if remote_checkpoints is None:
        return
    try:
        remote_checkpoints.put(file.name, file)
    except (OSError, ProviderError) as error:
        raise CheckpointError(
            f"{remote_checkpoints.place}/{file.name} can't be written: {error}"
        ) from error


def _upload_if_possible(file: Path, remote_checkpoints: Objects | None) -> bool:
    """Upload the state file; log an error and return False on failure.

    Between epochs an older state in the store is acceptable.
    """
    try:
        _upload(file, remote_checkpoints)
    except CheckpointError as error:
        _log.warning("%s; the trial continues, and saves again after the next epoch", error)
        return False
    return True


def _random_states() -> dict[str, Any]:
    """Return the random states of Python, NumPy and PyTorch."""
    states: dict[str, Any] = {"random": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state()
    return states


def _restore_random_states(states: Mapping[str, Any]) -> None:
    random.setstate(states["random"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "torch" in states and "torch" in sys.modules:
        sys.modules["torch"].set_rng_state(states["torch"])
