"""Epochs that are not lost with the instance that they ran on."""

from __future__ import annotations

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
from hpo.protocol.checkpoint_names import name_of_states
from hpo.worker.trial import RemoteTrial

_log = logging.getLogger(__name__)


def epochs(trial: BaseTrial, count: int, state: Mapping[str, Any] | None = None) -> Iterator[int]:
    """The epochs of a trial that are still to be done, from 0 to `count` - 1.

    With a `state` it is saved after each epoch but the last, and where the objective is started
    again, on whatever instance, it is put back and the epochs go on after it. The random numbers
    of Python, NumPy and PyTorch go on too. An instance that is to leave does so after an epoch, or
    while `trial.should_prune` waits for other trials: what stands after that in the loop's body is
    left out then.
    Without Castor, or without a state, this is `range(count)`.

    Args:
        trial: the objective's trial.
        count: how many epochs the objective takes in all.
        state: what changes from epoch to epoch, by name: things with `state_dict` and
            `load_state_dict`, such as models and optimizers of PyTorch, or with `clear` and
            `update`, such as dictionaries.

    Raises:
        SpecError: a part of the state can't be put back.
        CheckpointError: the state can't be saved or read.
    """
    if state is not None:
        _check(state)
    if isinstance(trial, RemoteTrial):  # how it can be planned for
        note(trial, attributes.STEPS, count)
        if trial.is_shared:
            state = None  # its session has it
        note(trial, attributes.PAUSES, state is not None)
    if state is None or not isinstance(trial, RemoteTrial) or trial.place is None:
        yield from range(count)
        return
    place, trial.keeps_states = trial.place, True
    file = place.checkpoint_directory() / f"{lasting_name(trial)}.checkpoint"
    depot = place.depot()

    def leave(epochs_done: int) -> NoReturn:
        _save(file, _Saved(epochs_done, _parts(state), _random_states(), is_asking=True))
        _keep(file, depot)
        place.left()
        raise SystemExit(0)

    _fetch(file, depot)
    first, is_asking = _restore(file, state)
    if is_asking:
        trial.leave = partial(leave, first)
        if trial.should_prune():
            raise optuna.TrialPruned
    for epoch in range(first, count):
        trial.leave = partial(leave, epoch + 1) if epoch + 1 < count else None
        yield epoch
        if epoch + 1 < count:
            _save(file, _Saved(epoch + 1, _parts(state), _random_states()))
            is_kept = _keep_if_possible(file, depot)
            place.stepped(epoch + 1)
            if place.must_leave and not is_kept:
                _keep(file, depot)
            if place.must_leave:
                place.left()
                raise SystemExit(0)


def note(trial: RemoteTrial, attribute: str, value: int) -> None:
    """Say something of a trial that its driver plans with."""
    if trial.user_attrs.get(attribute) != value:
        trial.set_user_attr(attribute, value)


def lasting_name(trial: RemoteTrial) -> str:
    """A trial's name among those of all studies that ever had its study's name."""
    return name_of_states(trial.number, trial.datetime_start)


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a file of ours holds."""

    epochs: int
    parts: dict[str, Any]
    random_states: dict[str, Any]
    is_asking: bool = False


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
    """Put back what was saved.

    Returns the first epoch that is to be done, and whether the pruner is to be asked before: the
    trial left while it was waited for.
    """
    try:
        saved: _Saved = pickle.loads(file.read_bytes())
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
    _put_back(saved.random_states)
    return saved.epochs, saved.is_asking


def _parts(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: part.state_dict() if _has(part, "state_dict") else part.copy()
        for name, part in state.items()
    }


def _save(file: Path, saved: _Saved) -> None:
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


def _fetch(file: Path, depot: Objects | None) -> None:
    """Let `file` be as the depot has it, which may be: not at all."""
    if depot is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        depot.download(file.name, file)
    except NotFound:
        file.unlink(missing_ok=True)
    except (OSError, ProviderError) as error:
        raise CheckpointError(f"{depot.place}/{file.name} can't be read: {error}") from error


def _keep(file: Path, depot: Objects | None) -> None:
    """Let the depot have what is in `file`."""
    if depot is None:
        return
    try:
        depot.put(file.name, file)
    except (OSError, ProviderError) as error:
        raise CheckpointError(f"{depot.place}/{file.name} can't be written: {error}") from error


def _keep_if_possible(file: Path, depot: Objects | None) -> bool:
    """The same between epochs, where an older state in the depot is no reason to end."""
    try:
        _keep(file, depot)
    except CheckpointError as error:
        _log.warning("%s; the trial goes on, and saves after the next epoch", error)
        return False
    return True


def _random_states() -> dict[str, Any]:
    """The states of the generators that the objective may draw from."""
    states: dict[str, Any] = {"random": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state()
    return states


def _put_back(states: Mapping[str, Any]) -> None:
    random.setstate(states["random"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "torch" in states and "torch" in sys.modules:
        sys.modules["torch"].set_rng_state(states["torch"])
