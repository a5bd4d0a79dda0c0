"""Validation of jobs, the same for files and requests.

Errors name fields as job files do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    DataMount,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
    SecretReference,
)
from autoscaler.domain.model import require_valid_model
from autoscaler.domain.objective import Objective
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.paths import relative_names, require_absolute_path
from autoscaler.domain.restart_rules import require_valid_restart
from autoscaler.domain.rules import (
    LATEST_SECONDS,
    LONGEST_SECONDS,
    require_amount,
    require_at_most,
    require_count,
    require_image,
    require_line,
    require_name,
    require_number,
    require_positive,
    require_sha256,
    require_variable,
    require_word,
)
from autoscaler.domain.text import printable, quoted

MOST_INSTANCES: Final = 10_000
_MOST_DEVICES: Final = 10_000
MOST_SHARD_DEVICES: Final = 10_000
MOST_SHARDS: Final = 16
MOST_RETRIES: Final = 100
MOST_EXAMPLES_OF_BATCH: Final = 1 << 31
MOST_EXAMPLES: Final = 1e18
LEAST_PRIORITY: Final = 0.01
MOST_PRIORITY: Final = 100.0
"""Largest priority; a wider range would lose the smallest jobs to rounding."""
_MOST_ENTRIES: Final = 1_000
_MOST_KEPT: Final = 10_000
_MOST_OUTPUT_BYTES: Final = 1 << 50
_LONGEST_PATTERN: Final = 1_000
_LONGEST_WORD: Final = 128 * 1024  # characters of one process argument or variable in Linux


def require_valid_job(spec: JobSpec) -> None:
    """Check everything that a job is submitted with.

    Raises:
        SpecError: a value is invalid; its `field` is the key of the job file.
    """
    require_name(spec.name, "name")
    if spec.program is not None:
        require_name(spec.program, "program")
    if spec.study is not None:
        require_name(spec.study, "study")
    if spec.bundle is not None:
        require_sha256(spec.bundle, "bundle")
    _require_process(spec)
    _require_secrets(spec)
    _require_mounts(spec)
    require_valid_batch(spec.batch)
    require_valid_bounds(spec.instances)
    _require_parallelism(spec.parallelism)
    if spec.model is not None:
        require_valid_model(spec.model)
    require_valid_objective(spec.objective)
    _require_checkpoint(spec.checkpoint)
    _require_outputs(spec.outputs)
    if spec.total_examples is not None:
        require_positive(spec.total_examples, "total_progress", MOST_EXAMPLES)
    require_count(spec.retries, "retries", MOST_RETRIES, least=0)
    if spec.requested_devices is not None:
        require_count(spec.requested_devices, "requested_devices", 1 << 20)
    require_valid_priority(spec.priority)
    require_valid_restart(spec)


def require_settable(spec: JobSpec) -> None:
    """Check that a submitted job sets no key that only the controller sets.

    Raises:
        SpecError: the job sets `person`, `team`, `resumes` or `objective.cap_usd`.
    """
    for key in ("person", "team"):
        if getattr(spec, key) is not None:
            raise SpecError("is set from the token of the submitter: leave it out", key)
    if spec.resumes is not None:
        raise SpecError("is set by castor resume JOB: leave it out", "resumes")
    require_settable_objective(spec.objective)


def as_submitted(spec: JobSpec) -> JobSpec:
    """Return a stored job without what only the controller sets, to submit it again."""
    objective = replace(spec.objective, cap_usd=None)
    return replace(spec, person=None, team=None, resumes=None, objective=objective)


def require_settable_objective(objective: Objective) -> None:
    """Check that a submitted objective sets no key that only the controller sets.

    Raises:
        SpecError: the objective sets `cap_usd`.
    """
    if objective.cap_usd is not None:
        raise SpecError(
            "is the default budget of the deployment: leave it out, or write budget",
            "objective.cap_usd",
        )


def require_program(command: Sequence[str], field: str) -> None:
    """Check that a command begins with a program.

    Raises:
        SpecError: as `require_valid_job`.
    """
    if not command or not command[0].strip():
        raise SpecError("names no program: write the program to run, and its arguments", field)


def _require_ceilings(bounds: InstanceBounds) -> None:
    ceilings = {
        "max_usd_per_hour": bounds.max_usd_per_hour,
        "max_instance_usd_per_hour": bounds.max_instance_usd_per_hour,
    }
    for key, ceiling in ceilings.items():
        if ceiling is not None:
            require_amount(ceiling, f"instances.{key}")


def require_valid_bounds(bounds: InstanceBounds) -> None:
    """Check the bounds of a job's instances and its list of offers.

    Raises:
        SpecError: as `require_valid_job`.
    """
    require_count(bounds.minimum, "instances.min", MOST_INSTANCES)
    require_count(bounds.maximum, "instances.max", MOST_INSTANCES)
    if bounds.minimum > bounds.maximum:
        raise SpecError(
            f"min: {bounds.minimum} is above max: {bounds.maximum}; lower min or raise max",
            "instances",
        )
    _require_ceilings(bounds)
    if bounds.offers is not None:
        if not bounds.offers:
            raise SpecError("is empty: fill it in or leave the key out", "instances.offers")
        require_at_most(len(bounds.offers), "instances.offers", _MOST_ENTRIES)
        for offer in bounds.offers:
            require_line(offer, "instances.offers")
    if bounds.gpus is not None:
        if not bounds.gpus:
            raise SpecError("is empty: fill it in or leave the key out", "instances.gpu")
        require_at_most(len(bounds.gpus), "instances.gpu", _MOST_ENTRIES)
        for gpu in bounds.gpus:
            require_line(gpu.name, "instances.gpu")
            if gpu.devices is not None:
                require_count(gpu.devices, "instances.gpu", _MOST_DEVICES)
    require_at_most(len(bounds.maxima), "instances.max_of", _MOST_ENTRIES)
    for offer, most in bounds.maxima:
        require_line(offer, "instances.max_of")
        require_count(most, f"instances.max_of.{offer}", MOST_INSTANCES)
        if most < bounds.minimum:
            raise SpecError(
                f"max_of: {offer}: {most} is below min: {bounds.minimum}; raise it, or leave "
                "this offer out of offers",
                "instances",
            )


def require_valid_objective(objective: Objective) -> None:
    """Check the objective of a job or a study.

    Raises:
        SpecError: as `require_valid_job`.
    """
    if objective.value_of_time_usd_per_hour is not None:
        require_amount(objective.value_of_time_usd_per_hour, "objective.value_of_time")
    if objective.budget_usd is not None:
        require_amount(objective.budget_usd, "objective.budget")
    if objective.cap_usd is not None:
        require_amount(objective.cap_usd, "objective.cap_usd")
    if objective.is_uncapped and objective.budget_usd is not None:
        raise SpecError("contradicts is_uncapped: leave one of the two out", "objective.budget")
    if objective.deadline_seconds is not None:
        require_number(objective.deadline_seconds, "objective.deadline", 0.0, LATEST_SECONDS)


def require_valid_priority(priority: float) -> None:
    """Check the weight of a job where limits bind.

    Raises:
        SpecError: as `require_valid_job`.
    """
    require_number(priority, "priority", LEAST_PRIORITY, MOST_PRIORITY)


def require_valid_batch(batch: BatchSpec) -> None:
    """Check an owner's bounds of batch sizes.

    Raises:
        SpecError: as `require_valid_job`.
    """
    sizes = {"initial": batch.initial, "max": batch.maximum, "device_max": batch.device_maximum}
    for key, size in sizes.items():
        if size is None:
            continue
        require_count(size, f"batch.{key}", MOST_EXAMPLES_OF_BATCH)
        if batch.maximum is not None and size > batch.maximum:
            raise SpecError(f"{key}: {size} is above max: {batch.maximum}; raise max", "batch")
    require_at_most(len(batch.kind_maxima), "batch.kind_maxima", _MOST_ENTRIES)
    for kind, size in batch.kind_maxima:
        require_line(kind, "batch.kind_maxima")
        require_count(size, f"batch.kind_maxima.{kind}", MOST_EXAMPLES_OF_BATCH)


def require_output_pattern(pattern: str, field: str) -> None:
    """Check a path or a glob inside a job's working directory.

    Raises:
        SpecError: as `require_valid_job`.
    """
    relative_names(pattern, field)
    require_line(pattern, field, longest=_LONGEST_PATTERN)


def _require_process(spec: JobSpec) -> None:
    require_program(spec.command, "command")
    for key, words in (("command", spec.command), ("setup", spec.setup)):
        require_at_most(len(words), key, _MOST_ENTRIES)
        for word in words:
            require_word(word, key, _LONGEST_WORD)
    if not all(command.strip() for command in spec.setup):
        raise SpecError("contains a blank command: write one, or leave it out", "setup")
    require_at_most(len(spec.environment), "environment", _MOST_ENTRIES)
    for name, value in spec.environment.items():
        field = f"environment.{_key(name)}"
        require_variable(name, field)
        require_word(value, field, _LONGEST_WORD)
    if spec.image is not None:
        require_image(spec.image, "image")


def _require_secrets(spec: JobSpec) -> None:
    require_at_most(len(spec.secrets), "secrets", _MOST_ENTRIES)
    for name, reference in spec.secrets.items():
        field = f"secrets.{_key(name)}"
        require_variable(name, field)
        if name in spec.environment:
            raise SpecError(f"{name} is in environment too: leave one of the two out", "secrets")
        _require_reference(reference, field)


def _require_reference(reference: SecretReference, field: str) -> None:
    if (reference.variable is None) == (reference.file is None):
        raise SpecError("needs exactly one source: variable, or file", field)
    if reference.variable is not None:
        require_variable(reference.variable, f"{field}.variable")
    if reference.file is not None:
        require_line(reference.file, f"{field}.file", longest=1_000)


def _require_mounts(spec: JobSpec) -> None:
    require_at_most(len(spec.data), "data", _MOST_ENTRIES)
    for index, mount in enumerate(spec.data):
        _require_mount(mount, f"data.{index}")
        if mount.read_only and spec.image is None:
            raise SpecError(
                f"{mount.target}: read_only needs a container: set image, or leave read_only "
                "out and restrict the files' permissions",
                "data",
            )


def _require_mount(mount: DataMount, field: str) -> None:
    require_absolute_path(mount.source, f"{field}.source")
    relative_names(mount.target, f"{field}.target")
    if ":" in mount.source or ":" in mount.target:
        raise SpecError("a path with a colon can't be mounted: rename it", field)


def _require_parallelism(parallelism: ParallelismSpec) -> None:
    require_count(parallelism.pipeline, "parallelism.pipeline", MOST_INSTANCES)
    require_count(parallelism.microbatches, "parallelism.microbatches", 1 << 20)
    if parallelism.near_instances is not None:
        near_instances = parallelism.near_instances
        require_count(near_instances, "parallelism.near_instances", MOST_INSTANCES)
    require_count(parallelism.shard, "parallelism.shard", MOST_SHARD_DEVICES)
    require_at_most(len(parallelism.shards), "parallelism.shard", MOST_SHARDS)
    for shard in parallelism.shards:
        require_count(shard, "parallelism.shard", MOST_SHARD_DEVICES)
    if len(set(parallelism.shards)) < len(parallelism.shards):
        raise SpecError("lists a size twice: leave one of them out", "parallelism.shard")


def _require_checkpoint(checkpoint: CheckpointSpec) -> None:
    directory = checkpoint.directory
    if directory is not None:
        if PurePosixPath(directory).is_absolute():
            require_absolute_path(directory, "checkpoint.directory")
        else:
            relative_names(directory, "checkpoint.directory")
    if checkpoint.interval_seconds is not None:
        require_positive(checkpoint.interval_seconds, "checkpoint.interval", LONGEST_SECONDS)
    require_count(checkpoint.keep, "checkpoint.keep", _MOST_KEPT)
    if checkpoint.adopt is None:
        return
    require_name(checkpoint.adopt.partition(".")[0], "checkpoint.adopt")
    require_line(checkpoint.adopt, "checkpoint.adopt")
    if directory is None or not PurePosixPath(directory).is_absolute():
        raise SpecError(
            "needs an absolute directory, which another job may have used: to continue from "
            f"the job's own checkpoints, run castor resume {checkpoint.adopt}",
            "checkpoint.adopt",
        )


def _require_outputs(outputs: OutputSpec) -> None:
    patterns = outputs.patterns or ()
    require_at_most(len(patterns), "outputs.paths", _MOST_ENTRIES)
    for pattern in patterns:
        require_output_pattern(pattern, "outputs.paths")
    require_count(outputs.maximum_bytes, "outputs.limit", _MOST_OUTPUT_BYTES)


def _key(name: str) -> str:
    """Return a key in the form in which an error's field may show it."""
    return name if len(name) <= 60 and printable(name) == name else quoted(name)
