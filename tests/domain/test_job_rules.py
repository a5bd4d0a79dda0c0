from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.model import ModelSpec
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.text import has_controls
from autoscaler.spec.quantities import parse_money

SPEC = JobSpec("digits", ("python", "train.py"))
ESCAPE = "\x1b[2J"


def value_of_time(usd_per_hour: float) -> Objective:
    return Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=usd_per_hour)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    *(
        ("name", {"name": name})
        for name in ("", "/tmp/x", "../../evil", "*/checkpoints", "x" * 100_000, "a\nb", "A", "-a")
    ),
    ("name", {"name": f"{ESCAPE}hi"}),
    ("program", {"program": "../../x"}),
    ("study", {"study": "x/../../../etc"}),
    ("bundle", {"bundle": "../../secret"}),
    ("command", {"command": ()}),
    ("command", {"command": ("",)}),
    ("command", {"command": (" \t", "x")}),
    ("command", {"command": ("true", "\0")}),
    ("command", {"command": ("true",) * 100_000}),
    ("setup", {"setup": ("\0",)}),
    ("command", {"command": ("true", "\ud800")}),
    ("environment.A", {"environment": {"A": "\ud800"}}),
    ("environment.1A", {"environment": {"1A": "x"}}),
    ("environment.A", {"environment": {"A": "\0"}}),
    ("secrets.A", {"secrets": {"A": SecretReference()}}),
    ("secrets.A", {"secrets": {"A": SecretReference("B", "/c")}}),
    ("secrets.A.variable", {"secrets": {"A": SecretReference("not one")}}),
    ("secrets", {"secrets": {"A": SecretReference("A")}, "environment": {"A": "x"}}),
    ("data.0.source", {"data": (DataMount("data", "data"),)}),
    ("data.0.source", {"data": (DataMount("/data/../etc", "data"),)}),
    ("data.0.target", {"data": (DataMount("/data", "../data"),)}),
    ("data.0", {"data": (DataMount("/data:/etc", "data"),)}),
    ("data", {"data": (DataMount("/data", "data", read_only=True),)}),
    ("image", {"image": "--privileged"}),
    ("batch.initial", {"batch": BatchSpec(initial=-1, maximum=-2, adaptive=True)}),
    ("batch.max", {"batch": BatchSpec(initial=64, maximum=10**21, adaptive=True)}),
    ("batch", {"batch": BatchSpec(initial=64, maximum=32, adaptive=True)}),
    ("batch.kind_maxima.a100", {"batch": BatchSpec(kind_maxima=(("a100", 0),))}),
    ("instances.min", {"instances": InstanceBounds(-5, -1)}),
    ("instances.max", {"instances": InstanceBounds(1, 10**9)}),
    ("instances", {"instances": InstanceBounds(3, 1)}),
    ("instances.offers", {"instances": InstanceBounds(offers=())}),
    ("instances.offers", {"instances": InstanceBounds(offers=(ESCAPE,))}),
    ("instances.max_of.a", {"instances": InstanceBounds(maxima=(("a", 10**9),))}),
    ("instances", {"instances": InstanceBounds(2, 4, maxima=(("a", 1),))}),
    ("parallelism.pipeline", {"parallelism": ParallelismSpec(pipeline=10**9)}),
    ("model.parameters", {"model": ModelSpec(math.nan)}),
    ("model.parameters", {"model": ModelSpec(1e30)}),
    ("model.activations", {"model": ModelSpec(7e9, activation_bytes=-1.0)}),
    ("parallelism.shard", {"parallelism": ParallelismSpec(shard=10**9)}),
    ("parallelism.shard", {"parallelism": ParallelismSpec(shards=(8, 10**9))}),
    ("parallelism.shard", {"parallelism": ParallelismSpec(shards=(8, 8))}),
    ("parallelism.shard", {"parallelism": ParallelismSpec(shards=tuple(range(1, 100)))}),
    ("objective.value_of_time", {"objective": value_of_time(math.nan)}),
    ("objective.value_of_time", {"objective": value_of_time(1e300)}),
    ("objective.value_of_time", {"objective": value_of_time(-1.0)}),
    ("objective.budget", {"objective": Objective(budget_usd=Decimal("NaN"))}),
    ("objective.budget", {"objective": Objective(budget_usd=Decimal(-5))}),
    ("objective.budget", {"objective": Objective(budget_usd=Decimal("1e400"))}),
    ("objective.deadline", {"objective": Objective(deadline_seconds=math.nan)}),
    ("objective.deadline", {"objective": Objective(deadline_seconds=1e300)}),
    ("checkpoint.directory", {"checkpoint": CheckpointSpec("../../evil")}),
    ("checkpoint.directory", {"checkpoint": CheckpointSpec("/models/../etc")}),
    ("checkpoint.directory", {"checkpoint": CheckpointSpec(f"a{ESCAPE}")}),
    ("checkpoint.interval", {"checkpoint": CheckpointSpec(interval_seconds=math.nan)}),
    ("checkpoint.keep", {"checkpoint": CheckpointSpec(keep=0)}),
    ("total_progress", {"total_examples": math.nan}),
    ("total_progress", {"total_examples": 1e308}),
    ("total_progress", {"total_examples": -1.0}),
    ("retries", {"retries": 10**9}),
    ("retries", {"retries": -1}),
    ("requested_devices", {"requested_devices": -3}),
    ("priority", {"priority": 1e300}),
    ("priority", {"priority": math.nan}),
]


@pytest.mark.parametrize(("field", "change"), REFUSED)
def test_a_value_that_can_not_be_used_is_refused_by_its_field(
    field: str, change: dict[str, Any]
) -> None:
    with pytest.raises(SpecError) as caught:
        require_valid_job(replace(SPEC, **change))
    assert caught.value.field == field
    assert len(str(caught.value)) < 400
    assert not has_controls(str(caught.value))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "a" * 40, "program": "0", "study": "sweep-v2", "bundle": "a" * 64},
        {"checkpoint": CheckpointSpec("/models/mine", 0.5, 10_000)},
        {"checkpoint": CheckpointSpec("runs/best")},
        {"image": "registry.example:5000/team/app:1.2@sha256:" + "0" * 64},
        {"data": (DataMount("/datasets", "data/own"),), "retries": 0},
        {"instances": InstanceBounds(1, 10_000, ("p4d.24xlarge",), maxima=(("a/b:c", 7),))},
        {"batch": BatchSpec(64, 4096, 256, adaptive=True, kind_maxima=(("a100", 512),))},
        {"objective": value_of_time(1e-9), "priority": 0.01, "total_examples": 1e12},
        {"command": ("sh", "-c", "echo a\necho b", "")},
    ],
)
def test_a_value_that_can_be_used_is_taken(change: dict[str, Any]) -> None:
    require_valid_job(replace(SPEC, **change))


@pytest.mark.parametrize(
    ("objective", "field", "value"),
    [
        (value_of_time(math.nan), "objective.value_of_time", "nan"),
        (value_of_time(0.0), "objective.value_of_time", "0.0"),
        (Objective(budget_usd=Decimal(-5)), "objective.budget", "-5"),
    ],
)
def test_an_amount_is_refused_as_a_job_file_refuses_it(
    objective: Objective, field: str, value: str
) -> None:
    with pytest.raises(SpecError) as caught:
        require_valid_job(replace(SPEC, objective=objective))
    with pytest.raises(ValueError) as refused:
        parse_money(value)
    assert str(caught.value) == f"{field}: {refused.value}"
    assert "write it like 40 or $0.50" in str(caught.value)


@pytest.mark.parametrize(
    ("objective", "refused"),
    [
        (Objective(budget_usd=Decimal("2e9")), 'objective.budget: "2E+9"'),
        (value_of_time(math.inf), 'objective.value_of_time: "inf"'),
    ],
)
def test_an_amount_that_is_too_large_is_refused_with_the_most(
    objective: Objective, refused: str
) -> None:
    with pytest.raises(SpecError) as caught:
        require_valid_job(replace(SPEC, objective=objective))
    assert str(caught.value) == f"{refused} is too large: write at most $1,000,000,000"


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    with pytest.raises(SpecError) as caught:
        require_valid_job(replace(SPEC, secrets={"A": SecretReference("s3cret!")}))
    assert "s3cret" not in str(caught.value)


texts = st.text(st.characters(), max_size=60)
floats = st.floats(allow_nan=True, allow_infinity=True)
counts = st.integers(-(10**30), 10**30)


@given(
    changes=st.fixed_dictionaries(
        {},
        optional={
            "name": texts,
            "program": texts,
            "study": texts,
            "command": st.tuples(texts),
            "image": texts,
            "environment": st.dictionaries(texts, texts, max_size=2),
            "data": st.tuples(st.builds(DataMount, texts, texts, st.booleans())),
            "instances": st.builds(InstanceBounds, counts, counts),
            "batch": st.builds(BatchSpec, counts, counts, counts),
            "checkpoint": st.builds(CheckpointSpec, texts, floats, counts),
            "total_examples": floats,
            "retries": counts,
            "priority": floats,
        },
    )
)
def test_any_spec_is_valid_or_refused_in_one_printable_line(changes: dict[str, Any]) -> None:
    try:
        require_valid_job(replace(SPEC, **changes))
    except SpecError as error:
        assert error.field
        assert not has_controls(str(error).replace("\t", ""))
        assert len(str(error)) < 400
