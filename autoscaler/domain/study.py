"""A study that a file describes: what is searched, how, with which jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from autoscaler.domain.job import JobSpec
from autoscaler.domain.objective import Objective

Choice = bool | int | float | str | None
# A plain value of a file, or a list or a mapping of plain values.
MethodOption = Union[Choice, Sequence["MethodOption"], Mapping[str, "MethodOption"]]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class NumberParameter:
    """A number between two bounds, both included: a whole one, or on a logarithmic scale."""

    low: float
    high: float
    is_whole: bool = False
    step: float | None = None
    log: bool = False


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    """One of several values."""

    choices: tuple[Choice, ...]


Parameter = NumberParameter | ChoiceParameter


@dataclass(frozen=True, slots=True)
class Method:
    """A sampler or pruner by its name, with its own options."""

    name: str
    options: Mapping[str, MethodOption] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudySpec:
    """All that a study's file says. One of `command`, a template, and `function` is there.

    `function` is `module:name`, of an objective in the working directory. `job` is the job of
    each trial, but for its name and command; `objective` is of all of them together. `storage`
    None is a file beside where it is run. `artifacts` is the directory for files that trials hand
    over, and `keep_checkpoints` lets those of all trials stay. `catch` names classes of errors
    that fail their trial only; `max_failures` is the number of failed trials tolerated in a run.
    """

    name: str
    job: JobSpec
    space: Mapping[str, Parameter] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    function: str | None = None
    directions: tuple[str, ...] = ("minimize",)
    storage: str | None = None
    sampler: Method | None = None
    pruner: Method | None = None
    objective: Objective = Objective()
    trials: int | None = None
    at_once: int | None = None
    timeout_seconds: float | None = None
    retries: int = 1
    catch: tuple[str, ...] = ()
    max_failures: int | None = None
    artifacts: str | None = None
    keep_checkpoints: bool = False
