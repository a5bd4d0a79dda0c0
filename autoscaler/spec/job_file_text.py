"""Text of the job file of a submitted job, from which the same job can be submitted again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

import yaml

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
    StallPolicy,
)
from autoscaler.domain.job_rules import as_submitted
from autoscaler.domain.model import ModelSpec
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.restart import RestartSpec
from autoscaler.spec.form_file import validated
from autoscaler.spec.job_form import JobForm, split_command
from autoscaler.spec.located_yaml import read_yaml
from autoscaler.spec.objective_text import NO_BUDGET
from autoscaler.spec.quantities import format_priority, parse_duration
from autoscaler.spec.restart_form import JobKind

_WIDTH: Final = 100
_LONG_SECONDS: Final = 600.0
_LEAST_USD: Final = Decimal("1e-9")
_USUAL: Final = JobSpec("usual", ("command",))

Mapped = dict[str, Any]


def job_file_text(
    spec: JobSpec, now_seconds: float, submitted_seconds: float | None = None
) -> str:
    """Return the text of the job file of a job, with the keys that differ from the defaults.

    A file that is read back is the same job, except for its packed files, the batches that its
    devices were found to hold, the decimals of a budget beyond nine, and its deadline. Of that a
    job has only the time at which it ends. A comment names the deadline if the file can't have it:

    - A deadline with a fraction of a second counted from the submission. It is written as that
      duration, which counts anew from the submission of the file.
    - A date that has passed is left out.

    Args:
        spec: the job.
        now_seconds: present time, seconds since the Unix epoch.
        submitted_seconds: time of the job's submission; None: each deadline is a date.

    Raises:
        SpecError: the job has values that a job file can't have; the field is the first of them.
    """
    plain, words, comment = _with_deadline(_plain(spec), now_seconds, submitted_seconds)
    mapping = _mapping(plain)
    if words is not None:
        mapping["objective"]["deadline"] = words
    text = _yaml(mapping)
    _require_same(text, plain, now_seconds)
    return f"{comment}{text}"


def _with_deadline(
    plain: JobSpec, now_seconds: float, submitted_seconds: float | None
) -> tuple[JobSpec, str | None, str]:
    """Return a job as its file is read back, the words of its deadline, and a comment on it.

    The words are None if the job's own deadline is written as a date, or none is.
    """
    objective = plain.objective
    deadline_seconds = objective.deadline_seconds
    if deadline_seconds is None:
        return plain, None, ""
    moment = _moment(deadline_seconds)
    is_duration = submitted_seconds is not None and not deadline_seconds.is_integer()
    if is_duration and deadline_seconds > (submitted_seconds or 0.0):
        given = _duration(_rounded(deadline_seconds - (submitted_seconds or 0.0)))
        objective = replace(objective, deadline_seconds=now_seconds + parse_duration(given))
        comment = (
            f"# Its deadline was {moment[:19]}Z, {given} after its submission. Below, {given} "
            "count\n# from the next submission; a date with a time zone can take their place.\n"
        )
        return replace(plain, objective=objective), given, comment
    if deadline_seconds > now_seconds:
        return plain, None, ""
    objective = replace(objective, deadline_seconds=None, after_deadline=AfterDeadline.BALANCED)
    comment = (
        f"# Its deadline has passed and is left out: {moment}. For a new one, write\n"
        "# objective: {deadline: 4h}, or a date with a time zone in place of 4h.\n"
    )
    return replace(plain, objective=_with_known_confidence(objective)), None, comment


def _rounded(seconds: float) -> float:
    """Return a duration without the time that a submission took: whole minutes or seconds."""
    unit_seconds = 60.0 if seconds >= _LONG_SECONDS else 1.0
    return max(round(seconds / unit_seconds), 1) * unit_seconds


def _yaml(mapping: Mapped) -> str:
    """Return a mapping as YAML that is safe to print on a terminal."""
    text = yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True, width=_WIDTH)
    if text.replace("\n", "").isprintable():
        return text
    return yaml.safe_dump(mapping, sort_keys=False, allow_unicode=False, width=_WIDTH)


def _plain(spec: JobSpec) -> JobSpec:
    """Return a job without what no job file has, and what is found out anew."""
    plain = as_submitted(spec)
    parallelism = replace(plain.parallelism, has_chosen_shard=False)
    objective = plain.objective
    if objective.deadline_seconds is not None:
        rounded = datetime.fromtimestamp(objective.deadline_seconds, UTC).timestamp()
        objective = replace(objective, deadline_seconds=rounded)  # to the microsecond
    if objective.budget_usd is not None:  # the rest of a budget has more decimals than a file may
        rest_usd = objective.budget_usd.quantize(_LEAST_USD, ROUND_DOWN)
        objective = replace(objective, budget_usd=rest_usd or objective.budget_usd)
    return replace(
        plain,
        bundle=None,
        batch=replace(plain.batch, kind_maxima=()),
        parallelism=parallelism,
        objective=objective,
    )


def _with_known_confidence(objective: Objective) -> Objective:
    """Return an objective without a confidence if it has no constraint left."""
    return objective if objective.budget_usd is not None else replace(objective, confidence=0.9)


def _require_same(text: str, spec: JobSpec, now_seconds: float) -> None:
    """Check that a job file is read back as a job.

    Raises:
        SpecError: it is not; the field is the first that differs.
    """
    way_out = "a job file can't have it: submit the answer of GET /v1/jobs/JOB/spec over the API"
    try:
        read = validated(read_yaml(text, "job"), JobForm, {"now_seconds": now_seconds}).spec()
    except SpecError as error:
        raise SpecError(f"{error}; {way_out}") from None
    for name in JobSpec.__dataclass_fields__:
        if getattr(read, name) != getattr(spec, name):
            raise SpecError(way_out, name)


def _mapping(spec: JobSpec) -> Mapped:
    """Return the keys of the job file of a job."""
    words = {name: getattr(spec, name) for name in ("program", "image")}
    keys: Mapped = {
        "name": spec.name,
        "command": _command(spec.command),
        **{name: word for name, word in words.items() if word is not None},
        "environment": dict(spec.environment),
        "secrets": {
            name: {
                key: source
                for key, source in (("variable", secret.variable), ("file", secret.file))
                if source is not None
            }
            for name, secret in spec.secrets.items()
        },
        "setup": list(spec.setup),
        "data": [
            {"source": mount.source, "target": mount.target, "read_only": mount.read_only}
            for mount in spec.data
        ],
        "batch": _batch(spec.batch),
        "instances": _instances(spec.instances),
        "parallelism": _parallelism(spec.parallelism),
        "model": _model(spec.model),
        "objective": _objective(spec.objective),
        "checkpoint": _checkpoint(spec.checkpoint),
        "outputs": _outputs(spec.outputs),
        **_restart(spec.restart),
    }
    if spec.total_examples is not None:
        keys["total_progress"] = _number(spec.total_examples)
    if spec.retries != _USUAL.retries:
        keys["retries"] = spec.retries
    if spec.priority != _USUAL.priority:
        keys["priority"] = format_priority(spec.priority)
    if spec.stalls is not StallPolicy.TELL:
        keys["stalls"] = str(spec.stalls)
    return {key: value for key, value in keys.items() if value not in ({}, [], None)}


def _command(words: tuple[str, ...]) -> str | list[str]:
    """Return a command as one text, or as a list if the text would be read differently."""
    text = shlex.join(words)
    try:
        return text if split_command(text) == list(words) else list(words)
    except ValueError:
        return list(words)


def _batch(batch: BatchSpec) -> Mapped | str:
    keys: Mapped = {"initial": batch.initial, "max": batch.maximum}
    keys = _given(keys | {"device_max": batch.device_maximum})
    if batch.adaptive:
        return keys or {"fixed": False}
    return keys | {"fixed": True} if keys else "fixed"


def _instances(bounds: InstanceBounds) -> Mapped:
    keys: Mapped = {"min": bounds.minimum, "max": bounds.maximum}
    if bounds.offers is not None:
        keys["offers"] = list(bounds.offers)
    if not bounds.spot:
        keys["spot"] = False
    if bounds.maxima:
        keys["max_of"] = dict(bounds.maxima)
    if bounds.gpus is not None:
        keys["gpu"] = [str(gpu) for gpu in bounds.gpus]
    for name in ("max_usd_per_hour", "max_instance_usd_per_hour"):
        if getattr(bounds, name) is not None:
            keys[name] = _number(getattr(bounds, name))
    return keys


def _parallelism(parallelism: ParallelismSpec) -> Mapped:
    keys: Mapped = {}
    for name in ("pipeline", "microbatches", "shard"):
        if getattr(parallelism, name) != 1:
            keys[name] = getattr(parallelism, name)
    if parallelism.near_instances is not None:
        keys["near_instances"] = parallelism.near_instances
    if parallelism.is_undecided:
        keys["shard"] = "auto" if parallelism.auto_shard else list(parallelism.shards)
    return keys


def _model(model: ModelSpec | None) -> Mapped | None:
    if model is None:
        return None
    keys: Mapped = {
        "parameters": _number(model.parameters),
        "optimizer": str(model.optimizer),
        "dtype": str(model.precision),
    }
    if model.activation_bytes is not None:
        keys["activations"] = _number(model.activation_bytes)
    return keys


def _objective(objective: Objective) -> Mapped | str:
    keys: Mapped = {}
    if objective.value_of_time_usd_per_hour is not None:
        keys["value_of_time"] = _number(objective.value_of_time_usd_per_hour)
    if objective.deadline_seconds is not None:
        keys["deadline"] = _moment(objective.deadline_seconds)
    if objective.budget_usd is not None or objective.is_uncapped:
        usd = objective.budget_usd
        keys["budget"] = NO_BUDGET if usd is None else _number(usd)
    if objective.confidence != _USUAL.objective.confidence:
        keys["confidence"] = _number(objective.confidence)
    if objective.after_deadline is not AfterDeadline.BALANCED:
        keys["after_deadline"] = str(objective.after_deadline)
    if objective.preference in (Preference.BALANCED, Preference.VALUE_OF_TIME):
        return keys or str(objective.preference)
    return {"preference": str(objective.preference), **keys} if keys else str(objective.preference)


def _checkpoint(checkpoint: CheckpointSpec) -> Mapped:
    keys = _given({"directory": checkpoint.directory, "adopt": checkpoint.adopt})
    if checkpoint.interval_seconds is not None:
        keys["interval"] = _duration(checkpoint.interval_seconds)
    if checkpoint.keep != _USUAL.checkpoint.keep:
        keys["keep"] = checkpoint.keep
    return keys


def _outputs(outputs: OutputSpec) -> Mapped:
    keys: Mapped = {} if outputs.patterns is None else {"paths": list(outputs.patterns)}
    if outputs.maximum_bytes != _USUAL.outputs.maximum_bytes:
        keys["limit"] = outputs.maximum_bytes
    return keys


def _restart(restart: RestartSpec | None) -> Mapped:
    if restart is None:
        return {}
    keys: Mapped = {
        "checkpoint": restart.checkpoint,
        "grace": _duration(restart.grace_seconds),
        "wait": _duration(restart.wait_seconds),
    }
    if restart.progress is not None:
        keys["progress"] = restart.progress
    return {"kind": str(JobKind.RESTARTABLE), "restart": keys}


def _given(values: Mapping[str, Any]) -> Mapped:
    return {name: value for name, value in values.items() if value is not None}


def _number(value: Decimal | float) -> int | float | str:
    """Return a number as YAML has it, without an exponent, which amounts do not take."""
    text = f"{Decimal(repr(value)) if isinstance(value, float) else value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if text.isdigit():
        return int(text)
    return float(text) if repr(float(text)) == text else text


def _duration(seconds: float) -> str:
    """Return exactly these seconds as a duration of a job file."""
    whole = int(seconds)
    if seconds != whole:
        return f"{_number(seconds)}s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _moment(at_seconds: float) -> str:
    """Return a time in ISO 8601."""
    return datetime.fromtimestamp(at_seconds, UTC).isoformat().replace("+00:00", "Z")
