"""Studies that a file describes: search space, method, and the jobs of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from autoscaler.domain.job import JobSpec
from autoscaler.domain.objective import Objective

Choice = bool | int | float | str | None
# A scalar of a file, or a list or a mapping of such values.
MethodOption = Union[Choice, Sequence["MethodOption"], Mapping[str, "MethodOption"]]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class NumberParameter:
    """Number between two inclusive bounds: whole or real, optionally on a logarithmic scale."""

    low: float
    high: float
    is_whole: bool = False
    step: float | None = None
    log: bool = False


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    """Choice of one value among several."""

    choices: tuple[Choice, ...]


Parameter = NumberParameter | ChoiceParameter


@dataclass(frozen=True, slots=True)
class Method:
    """Sampler or pruner by name, with its options."""

    name: str
    options: Mapping[str, MethodOption] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudySpec:
    """Contents of a study's file. It has a `command` template or a `function`.

    `function` is `module:name` of an objective in the working directory. `job` is the job of each
    trial, except for name and command. `objective` applies to all trials together. `storage` None
    is a file in the current directory. `artifacts` is the directory for files that trials hand
    over. `keep_checkpoints` keeps the checkpoints of all trials. `catch` names error classes that
    fail only their trial. `max_failures` is the number of failed trials that a run tolerates.
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
