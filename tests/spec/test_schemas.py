"""JSON Schemas of files: current, complete, and in step with the parser.

``python -m tests.spec.test_schemas`` writes them to `docs/schemas`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.spec.cluster_file import ClusterForm
from autoscaler.spec.form_file import validated
from autoscaler.spec.located_yaml import read_yaml
from autoscaler.spec.schemas import FILES, file_schema

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "schemas"
SCHEMAS: Final = {kind: file_schema(kind) for kind in FILES}
EXAMPLES: Final = {
    "job": (*sorted(ROOT.glob("examples/*/job.yaml")), ROOT / "examples/simulation/words.yaml"),
    "study": (ROOT / "examples/digits/study.yaml",),
    "offers": (*sorted(ROOT.glob("examples/simulation/**/offers.yaml")),),
    "pool": (ROOT / "examples/simulation/pool.yaml",),
}
CONTEXT: Final = {"now_seconds": 1.8e9}
ALL_KEYS: Final = """
name: digits
program: digits
command: [python, train.py]
working_directory: .
ref: null
bundle_limit: 200MB
environment: {LEARNING_RATE: 0.10, DEBUG: true}
secrets: {HF_TOKEN: {variable: HF_TOKEN}}
setup: pip install -r requirements.txt
image: null
data: [{source: /datasets/digits, target: data, read_only: false}]
batch: {initial: 64, max: 1024, device_max: 256}
instances: {min: 1, max: 4, offers: [small], spot: true, max_of: {small: 2}, gpu: "H100:8"}
parallelism: {shard: [1, 8]}
model: {parameters: 1.2e6, optimizer: adamw, dtype: fp32, activations: 2MB}
objective: {deadline: 4h, budget: $20, confidence: 0.9, after_deadline: balanced}
checkpoint: {directory: checkpoints, interval: 5m, keep: 2}
outputs: [results]
total_progress: 1e6
retries: 3
priority: high
stalls: pause
kind: restartable
restart: {checkpoint: "checkpoints/step-*", grace: 30s, wait: 10m}
"""
# Files that the forms refuse for their structure: keys that are unknown or missing, other kinds.
BAD: Final = {
    "job": (
        "name: digits",
        "command: python train.py",
        "{name: digits, command: []}",
        "{name: digits, command: {run: a}}",
        "{name: [digits], command: a}",
        "{name: digits, command: a, gpus: 8}",
        "{name: digits, command: a, instances: {minimum: 1}}",
        "{name: digits, command: a, instances: {max: 0}}",
        "{name: digits, command: a, instances: {max: 100000}}",
        "{name: digits, command: a, instances: {max: many}}",
        "{name: digits, command: a, instances: 1.5}",
        "{name: digits, command: a, batch: adaptive}",
        "{name: digits, command: a, batch: {initial: -1}}",
        "{name: digits, command: a, secrets: {KEY: hunter2}}",
        "{name: digits, command: a, data: {source: /a, target: b}}",
        "{name: digits, command: a, data: [{source: /a}]}",
        "{name: digits, command: a, objective: quickest}",
        "{name: digits, command: a, objective: {deadline: 90}}",
        "{name: digits, command: a, objective: {deadline: soon}}",
        "{name: digits, command: a, objective: {budget: -5}}",
        "{name: digits, command: a, objective: {budget: a lot}}",
        "{name: digits, command: a, objective: {confidence: 1}}",
        "{name: digits, command: a, checkpoint: {interval: 5}}",
        "{name: digits, command: a, checkpoint: {keep: 0}}",
        "{name: digits, command: a, parallelism: {shard: []}}",
        "{name: digits, command: a, parallelism: {shard: wide}}",
        "{name: digits, command: a, priority: urgent}",
        "{name: digits, command: a, priority: 1000}",
        "{name: digits, command: a, retries: -1}",
        "{name: digits, command: a, stalls: ignore}",
        "{name: digits, command: a, kind: daemon}",
        "{name: digits, command: a, restart: {grace: 30s}}",
        "{name: digits, command: a, model: {optimizer: adamw}}",
        "{name: digits, command: a, model: {parameters: 0}}",
        "[]",
    ),
    "study": (
        "{command: a}",
        "{name: s, function: f:g, direction: up}",
        "{name: s, function: f:g, trials: 0}",
        "{name: s, function: f:g, timeout: 20}",
        "{name: s, command: 'a {x}', space: {x: {float: [1]}}}",
        "{name: s, command: 'a {x}', space: {x: {real: [1, 2]}}}",
        "{name: s, function: f:g, job: {instance: 1}}",
        "{name: s, function: f:g, retries: -1}",
        "{name: s, function: f:g, sampler: []}",
    ),
    "offers": (
        "offers: []",
        "{}",
        "offers: [{type: a, gpus: 8}]",
        "offers: [{type: a, purchase: lease}]",
        "offers: [{type: a, devices: 0}]",
        "offers: [{type: a, usd_per_hour: free}]",
        "offers: [{type: a, network: fast}]",
        "offers: [{type: a, boot: 3}]",
        "{offers: [{type: a}], limits: [{devices: 4}]}",
        "{offers: [{type: a}], prices_from: [{as_of: 2026-01-01}]}",
        "{offers: [{type: a}], discounts: [{provider: aws, factor: 0.8}]}",
    ),
    "pool": (
        "nodes: []",
        "nodes: [{kind: aws, count: 6}]",
        "nodes: [{kind: aws, count: 0, devices: 4}]",
        "{nodes: [{kind: aws, count: 1, devices: 4}], slowdown: {bert: 0}}",
        "{nodes: [{kind: aws, count: 1, devices: 4}], restarts: {}}",
    ),
}


def is_parsed(kind: str, text: str) -> bool:
    """Return whether the form of a kind of file takes a text."""
    try:
        validated(read_yaml(text, "file"), FILES[kind], CONTEXT)
    except SpecError:
        return False
    return True


def is_valid(kind: str, text: str) -> bool:
    """Return whether the schema of a kind of file takes a text, as an editor reads it."""
    value = json.loads(json.dumps(yaml.safe_load(text), default=str))
    return Draft202012Validator(SCHEMAS[kind]).is_valid(value)


def objects(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the forms of a schema with their names."""
    yield FILES[kind].__name__, SCHEMAS[kind]
    for name, part in SCHEMAS[kind].get("$defs", {}).items():
        if "properties" in part:
            yield name, part


@pytest.mark.parametrize("kind", FILES)
def test_the_files_of_the_schemas_are_current(kind: str) -> None:
    written = json.loads((FOLDER / f"{kind}.schema.json").read_text())
    assert written == SCHEMAS[kind], "run: python -m tests.spec.test_schemas"


@pytest.mark.parametrize("kind", FILES)
def test_a_schema_is_one_and_describes_every_key(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])
    for name, form in objects(kind):
        assert form["additionalProperties"] is False
        for key, value in form["properties"].items():
            assert value.get("description"), f"{name}.{key}"


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in EXAMPLES.items() for path in paths]
)
def test_the_examples_are_valid(kind: str, path: Path) -> None:
    assert is_parsed(kind, path.read_text())
    assert is_valid(kind, path.read_text())


def test_a_file_with_all_keys_is_valid() -> None:
    assert set(yaml.safe_load(ALL_KEYS)) == set(FILES["job"].model_fields)
    assert is_parsed("job", ALL_KEYS)
    assert is_valid("job", ALL_KEYS)


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, texts in BAD.items() for text in texts]
)
def test_what_the_parser_refuses_for_its_structure_the_schema_refuses(
    kind: str, text: str
) -> None:
    assert not is_parsed(kind, text)
    assert not is_valid(kind, text)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all parts of a document."""
    yield path
    listed = value if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else enumerate(listed):
        yield from places(part, (*path, key))


DOCUMENTS: Final = [
    ("job", yaml.safe_load(ALL_KEYS)),
    *((kind, yaml.safe_load(paths[0].read_text())) for kind, paths in EXAMPLES.items()),
]


WRONG: Final = ([], {}, [[1]], {"a": {"b": 1}}, -1, 1e12, "", "?", "7", True, None)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a good document with one part replaced, removed or added."""
    kind, document = draw(st.sampled_from(DOCUMENTS))
    document = copy.deepcopy(document)
    *parents, key = draw(st.sampled_from([place for place in places(document) if place]))
    holder = document
    for parent in parents:
        holder = holder[parent]
    match draw(st.sampled_from(["replace", "remove", "add"])):
        case "remove":
            del holder[key]
        case "add" if isinstance(holder, dict):
            holder[draw(st.sampled_from(["extra", "Name", "instance", "x"]))] = 1
        case _:
            wrong = st.sampled_from(
                [[], {}, [[1]], {"a": {"b": 1}}, -1, 1e12, "", "?", True, None]
            )
            holder[key] = draw(wrong)
    return kind, yaml.safe_dump(json.loads(json.dumps(document, default=str)))


@settings(max_examples=300, deadline=None)
@given(mutated())
def test_a_file_that_the_parser_takes_is_valid(case: tuple[str, str]) -> None:
    kind, text = case
    if is_parsed(kind, text):
        assert is_valid(kind, text), text


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotFound, match='no schema of "pod": choose one of job, study'):
        file_schema("pod")
    assert FILES["pool"] is ClusterForm


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in SCHEMAS.items():
        path = FOLDER / f"{name}.schema.json"
        path.write_text(json.dumps(schema, indent=2) + "\n")
