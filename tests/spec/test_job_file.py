from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

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
from autoscaler.domain.model import ModelSpec, OptimizerKind, Precision
from autoscaler.domain.objective import Objective
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.restart import RestartSpec
from autoscaler.spec.bundle import DEFAULT_MAXIMUM_BYTES
from autoscaler.spec.job_file import load_job

NOW_SECONDS = 1_000_000.0
REFERENCE = Path(__file__).parents[2] / "docs" / "job-file.md"
SMALL = "name: digits\ncommand: python train.py\n"


def spec_of(lines: str) -> JobSpec:
    return load_job(SMALL + lines, NOW_SECONDS).spec


def refusal_of(text: str) -> SpecError:
    with pytest.raises(SpecError) as refused:
        load_job(text, NOW_SECONDS)
    return refused.value


def examples() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)


def full_example() -> str:
    return next(example for example in examples() if example.startswith("# digits.yaml"))


def test_two_keys_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "digits.yaml"
    path.write_text(examples()[0], encoding="utf-8")
    job = load_job(path, NOW_SECONDS)
    assert job.spec == JobSpec(name="digits", command=("python", "train.py"))
    assert job.working_directory == tmp_path.resolve()
    assert job.ref is None
    assert job.maximum_bytes == DEFAULT_MAXIMUM_BYTES


def test_the_full_example_of_the_reference() -> None:
    job = load_job(full_example(), NOW_SECONDS)
    assert job.maximum_bytes == 200_000_000
    assert job.spec == JobSpec(
        name="digits",
        program="digits",
        command=("python", "train.py", "--epochs", "3"),
        environment={"TOKENIZERS_PARALLELISM": "false", "LEARNING_RATE": "0.10"},
        secrets={
            "HF_TOKEN": SecretReference(variable="HF_TOKEN"),
            "STORE_KEY": SecretReference(file="~/.config/store-key"),
        },
        data=(DataMount("/datasets/digits", "data", read_only=False),),
        setup=("pip install -r requirements.txt", "python prepare.py"),
        batch=BatchSpec(initial=64, maximum=1024, device_maximum=256, adaptive=True),
        parallelism=ParallelismSpec(near_instances=8),
        model=ModelSpec(1.2e6, OptimizerKind.ADAMW, Precision.FP32, 2e6),
        instances=InstanceBounds(
            *(1, 4, ("local-small", "local-large"), True, (("local-large", 2),)),
            max_usd_per_hour=Decimal(12),
            max_instance_usd_per_hour=Decimal(4),
        ),
        objective=Objective(deadline_seconds=NOW_SECONDS + 14_400, budget_usd=Decimal(20)),
        checkpoint=CheckpointSpec("checkpoints", interval_seconds=300.0, keep=2),
        outputs=OutputSpec(("best.pt", "runs/**")),
        total_examples=1.5e6,
        retries=3,
    )


@pytest.mark.parametrize(
    ("image", "wish", "read_only"),
    [("", "", False), ("image: i", "", True), ("image: i", ", read_only: false", False)],
)
def test_data_is_read_only_where_it_can_be(image: str, wish: str, read_only: bool) -> None:
    lines = f"{image}\ndata: [{{source: /datasets, target: data{wish}}}]"
    assert spec_of(lines).data == (DataMount("/datasets", "data", read_only),)


def test_the_full_example_has_every_key() -> None:
    restartable = next(example for example in examples() if "kind: restartable" in example)
    top_level = set(re.findall(r"^(\w+):", full_example() + restartable, re.MULTILINE))
    known = str(refusal_of(SMALL + "zzz: 1")).partition("valid keys are ")[2].split(", ")
    assert top_level == set(known)


@pytest.mark.parametrize(
    ("lines", "bounds"),
    [
        ("", InstanceBounds(1, 1)),
        ("instances: 4", InstanceBounds(1, 4)),
        ("instances: {min: 2}", InstanceBounds(2, 2)),
        ("instances: {max: 3, spot: false}", InstanceBounds(1, 3, spot=False)),
        ("instances: {offers: local-small}", InstanceBounds(offers=("local-small",))),
        ("instances: null", InstanceBounds()),
        ("instances: {max_usd_per_hour: $2.5}", InstanceBounds(max_usd_per_hour=Decimal("2.5"))),
    ],
)
def test_forms_of_instances(lines: str, bounds: InstanceBounds) -> None:
    assert spec_of(lines).instances == bounds


RESTARTS = "kind: restartable\nrestart: "
PROGRESS = "progress: 'step {step}'"


@pytest.mark.parametrize(
    ("lines", "restart", "sizes"),
    [
        ("checkpoints/step-*\ninstances: 4", RestartSpec("checkpoints/step-*"), (4, 4)),
        ("{checkpoint: /shared/*, grace: 1m}", RestartSpec("/shared/*", 60.0), (1, 1)),
        ("a/*\ninstances: {min: 2, max: 2}", RestartSpec("a/*"), (2, 2)),
        (
            f"{{checkpoint: a/*, wait: 1h, {PROGRESS}}}\nbatch: {{initial: 8, fixed: true}}\n"
            "instances: 4",
            RestartSpec("a/*", wait_seconds=3600.0, progress="step {step}"),
            (1, 4),
        ),
    ],
)
def test_forms_of_restarts(lines: str, restart: RestartSpec, sizes: tuple[int, int]) -> None:
    spec = spec_of(RESTARTS + lines)
    assert spec.restart == restart
    assert (spec.instances.minimum, spec.instances.maximum) == sizes


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("kind: restartable", "needs restart: name the files"),
        ("kind: elastic\nrestart: a/*", "'session' or 'restartable'"),
        ("restart: a/*", "restart needs kind: restartable"),
        (f"{RESTARTS}{{checkpoint: a/*, {PROGRESS}}}", "is required with restart.progress"),
        (f"{RESTARTS}{{checkpoint: a/*, progress: '{{step}}'}}", "would match every number"),
        (f"{RESTARTS}{{checkpoint: a/*, progress: done}}", "must name one number"),
        (f"{RESTARTS}../a/*", "restart: .* must be a path inside"),
        (f"{RESTARTS}a/**", r"\*\* is not supported"),
        (f"{RESTARTS}a/*\ninstances: {{min: 1, max: 4}}", "min: 1 is below max: 4"),
        (f"{RESTARTS}a/*\nbatch: {{initial: 4}}", "an adaptive batch needs a session"),
        (f"{RESTARTS}a/*\ncheckpoint: {{interval: 5m}}", "checkpoint.interval: needs a session"),
        (f"{RESTARTS}a/*\nparallelism: {{shard: 8}}", "parallelism.shard: needs a session"),
    ],
)
def test_invalid_restarts_are_refused_with_their_field(lines: str, message: str) -> None:
    assert re.search(message, str(refusal_of(SMALL + lines)))


@pytest.mark.parametrize(
    ("lines", "parallelism"),
    [
        ("", ParallelismSpec()),
        ("parallelism: {pipeline: 4, microbatches: 16}", ParallelismSpec(4, 16)),
        ("parallelism: {near_instances: 8}", ParallelismSpec(near_instances=8)),
        ("parallelism: {shard: 16}", ParallelismSpec(shard=16)),
        ("parallelism: {shard: [8, 16]}", ParallelismSpec(shards=(8, 16))),
        ("parallelism: {shard: [8]}", ParallelismSpec(shard=8)),
        ("parallelism: {shard: auto}", ParallelismSpec(auto_shard=True)),
    ],
)
def test_forms_of_parallelism(lines: str, parallelism: ParallelismSpec) -> None:
    assert spec_of(lines).parallelism == parallelism


@pytest.mark.parametrize(
    ("lines", "priority"),
    [("", 1.0), ("priority: low", 0.25), ("priority: high", 4.0), ("priority: 2.5", 2.5)],
)
def test_forms_of_priority(lines: str, priority: float) -> None:
    assert spec_of(lines).priority == priority


@pytest.mark.parametrize(("lines", "stalls"), [("", "tell"), ("stalls: pause", "pause")])
def test_forms_of_stalls(lines: str, stalls: str) -> None:
    assert spec_of(lines).stalls == stalls


@pytest.mark.parametrize(
    ("lines", "batch"),
    [
        ("", BatchSpec()),
        ("batch: fixed", BatchSpec()),
        ("batch: {initial: 64}", BatchSpec(initial=64, adaptive=True)),
        ("batch: {initial: 64, fixed: true}", BatchSpec(initial=64)),
        ("batch: {device_max: 8, fixed: yes}", BatchSpec(device_maximum=8)),
    ],
)
def test_forms_of_batch(lines: str, batch: BatchSpec) -> None:
    assert spec_of(lines).batch == batch


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ("outputs: best.pt", OutputSpec(("best.pt",))),
        ("outputs: [best.pt, runs/]", OutputSpec(("best.pt", "runs/"))),
        ("outputs: []", OutputSpec(())),
        ("outputs: {limit: 50GB}", OutputSpec(None, 50_000_000_000)),
        ("outputs: {paths: runs, limit: 1GB}", OutputSpec(("runs",), 1_000_000_000)),
    ],
)
def test_forms_of_outputs(lines: str, outputs: OutputSpec) -> None:
    assert spec_of(lines).outputs == outputs


@pytest.mark.parametrize(
    ("lines", "checkpoint"),
    [
        ("checkpoint: /models", CheckpointSpec("/models")),
        ("checkpoint: {interval: 90s}", CheckpointSpec(interval_seconds=90.0)),
    ],
)
def test_forms_of_checkpoint(lines: str, checkpoint: CheckpointSpec) -> None:
    assert spec_of(lines).checkpoint == checkpoint


def test_forms_of_command_and_setup() -> None:
    job = "name: digits\ncommand: [python, train.py, '--note=a b']\nsetup: make data"
    spec = load_job(job, NOW_SECONDS).spec
    assert spec.command == ("python", "train.py", "--note=a b")
    assert spec.setup == ("make data",)
    assert load_job("name: a\ncommand: x 'a b'", NOW_SECONDS).spec.command == ("x", "a b")


def test_environment_values_are_passed_on_as_written() -> None:
    lines = 'environment: {A: 0.10, B: on, C: 1e3, D: 010, E: "", F: yes, G: 2026-12-01}'
    assert list(spec_of(lines).environment.values()) == [
        "0.10",
        "on",
        "1e3",
        "010",
        "",
        "yes",
        "2026-12-01",
    ]


def test_a_working_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    path = tmp_path / "job.yaml"
    path.write_text(SMALL + "working_directory: code\nref: main\n", encoding="utf-8")
    job = load_job(path, NOW_SECONDS)
    assert job.working_directory == (tmp_path / "code").resolve()
    assert job.ref == "main"


REFUSED = [
    ("instnaces: 3", "instnaces", 'unknown key "instnaces": did you mean "instances"?'),
    ("env: {A: 1}", "env", 'did you mean "environment"?'),
    ("resources: {gpus: 1}", "resources", 'did you mean "instances"?'),
    ("run: python train.py", "run", 'did you mean "command"?'),
    ("notification: me", "notification", 'unknown key "notification": valid keys are name'),
    ("deadline: 4h", "deadline", 'did you mean "objective.deadline"?'),
    ("max: 3", "max", 'did you mean "batch.max" or "instances.max"?'),
    ("foo: 1", "foo", "valid keys are name, program, command"),
    ("priority: urgent", "priority", "write low, normal, high or a number from 0.01 to 100"),
    ("priority: 0", "priority", '"0" is not a priority'),
    ("instances: {minimum: 3}", "instances.minimum", 'did you mean "min"?'),
    ("instances: 0", "instances", 'must be at least 1, not "0"'),
    ("instances: many", "instances", 'must be a whole number, not "many"'),
    ("instances: {min: 4, max: 2}", "instances", "min: 4 is above max: 2; lower min or raise max"),
    ("instances: {min: 3, max: 4, max_of: {a: 2}}", "instances", "max_of: a: 2 is below min: 3"),
    ("instances: {max_of: {a: 0}}", "instances.max_of.a", "must be at least 1"),
    (
        "instances: {gpu: H1000}",
        "instances",
        'unknown kind of device "h1000": did you mean "h100"',
    ),
    ("instances: {max_usd_per_hour: 0}", "instances.max_usd_per_hour", "not an amount above $0"),
    (
        "instances: {max_instance_usd_per_hour: cheap}",
        "instances.max_instance_usd_per_hour",
        "not an amount above $0",
    ),
    ("instances: {gpu: 'H100:0'}", "instances", "write NAME or NAME:NUMBER, such as H100:8"),
    ("instances: {gpu: []}", "instances.gpu", "is empty"),
    ("instances: {gpu: L4, gpu_memory: 80GB}", "instances", "no GPU named L4 has 80 GB"),
    ("instances: {gpu_memory: 80}", "instances", "80 bytes: write it with a unit, as 80GB"),
    ("instances: {gpu_memory: much}", "instances.gpu_memory", "must be a size like"),
    (
        "instances: {offers: []}",
        "instances.offers",
        "is empty: write a value or leave the key out",
    ),
    ("instances: [3]", "instances", "must be a mapping"),
    ("parallelism: {pipeline: 0}", "parallelism.pipeline", "must be at least 1"),
    ("parallelism: {microbatches: 4}", "parallelism", "set pipeline to its number of stages"),
    ("parallelism: {pipeline: 2, near_instances: 4}", "parallelism", "leave one of the two out"),
    ("parallelism: {pipeline: 2, shard: 4}", "parallelism", "leave shard, or the other key, out"),
    ("parallelism: {near_instances: 2, shard: auto}", "parallelism", "leave shard"),
    ("model: {optimizer: adamw}", "model.parameters", "required"),
    ("model: {parameters: 0}", "model.parameters", "more than 0"),
    ("model: {parameters: 7e9, optimizer: lion}", "model.optimizer", "adamw"),
    ("model: {parameters: 7e9, dtype: fp8}", "model.dtype", "mixed"),
    ("parallelism: {shard: 0}", "parallelism.shard", "must be at least 1"),
    ("parallelism: {shard: many}", "parallelism.shard", "write a number of devices"),
    ("parallelism: {shard: []}", "parallelism.shard", "is empty"),
    ("parallelism: {shard: [4, 4]}", "parallelism.shard", "lists a size twice"),
    ("batch: 64", "batch", "write fixed, or bounds like {initial: 64}"),
    ("batch: {initial: 64, max: 32}", "batch", "initial: 64 is above max: 32; raise max"),
    ("batch: {max: 32, device_max: 64}", "batch", "device_max: 64 is above max: 32"),
    ("batch: {fixed: true, max: 32}", "batch", "a fixed batch has no max"),
    ("environment: {A: }", "environment.A", 'has no value: write "" for an empty text'),
    ("environment: {A: [1]}", "environment.A", "must be one text"),
    ("environment: {1A: x}", "environment.1A", "is not a valid variable name"),
    ("environment: A=1", "environment", "must be a mapping of keys to values"),
    ("secrets: {A: {}}", "secrets.A", "needs exactly one source: variable, or file"),
    ("secrets: {A: {variable: B, file: c}}", "secrets.A", "needs exactly one source"),
    ("data: [{source: /a}]", "data.0.target", "is required"),
    ("data: [{source: a, target: b}]", "data.0.source", "must be an absolute path"),
    ("data: [{source: /a, target: ../b}]", "data.0.target", "must be a path inside"),
    ("data: [{source: /a, target: /b}]", "data.0.target", "must be a path inside"),
    ("data: [{source: /a, target: .}]", "data.0.target", "must be a path inside"),
    ("data: {source: /a, target: b}", "data", "must be a list"),
    ("objective: fast", "objective", "is not an objective"),
    ("objective: {deadlne: 4h}", "objective.deadlne", 'did you mean "deadline"?'),
    ("objective: {deadline: 1970-01-01T00:00Z}", "objective.deadline", "ago: write a future"),
    ("objective: {budget: -5}", "objective.budget", "is not an amount above $0"),
    ("checkpoint: {interval: 5}", "checkpoint.interval", "write a number and a unit"),
    ("outputs: ../best.pt", "outputs", "inside the job's own tree"),
    ("outputs: [runs, /models]", "outputs", "inside the job's own tree"),
    ("outputs: {paths: [a/../../b]}", "outputs.paths.0", "inside the job's own tree"),
    ("outputs: {limit: 0}", "outputs.limit", "must be more than 0"),
    ("checkpoint: {keep: 0}", "checkpoint.keep", "must be at least 1"),
    ("total_progress: 0", "total_progress", "must be more than 0"),
    ("total_progress: nan", "total_progress", "must be a number"),
    ("retries: -1", "retries", "must be at least 0"),
    ("retries: 1.5", "retries", "must be a whole number"),
    ("bundle_limit: lots", "bundle_limit", "must be a size like 200MB"),
    ("bundle_limit: 0", "bundle_limit", "must be more than 0"),
    ("working_directory: no-such", "working_directory", "is not a directory"),
    ("image: ''", "image", "is empty"),
    (
        "data: [{source: /d, target: d, read_only: true}]",
        "data",
        "read_only needs a container: set image",
    ),
    ("setup: {pip: x}", "setup", "must be a list"),
    ('objective: "a\\n{b}"', "objective", '"a\\x0a{b}" is not an objective'),
    ("batch: {initial: 64, max: 1000000000000000000000}", "batch.max", "must be at most"),
    ("instances: 1000000000000", "instances", "must be at most 10000"),
    ("retries: 1000000000", "retries", "must be at most 100"),
    ("checkpoint: ../../../evil", "checkpoint", "must be a path inside"),
    ("checkpoint: {directory: /models/../etc}", "checkpoint.directory", "must be an absolute"),
    ('checkpoint: "a\\eb"', "checkpoint", '"a\\x1bb" must be a path inside'),
    ("program: ../../x", "program", "is not a valid name"),
    ("image: --privileged", "image", "is not a valid image: write one like registry/name:tag"),
    (f"retries: {'9' * 5000}", "retries", "nable to parse input"),
]


@pytest.mark.parametrize(("lines", "field", "complaint"), REFUSED)
def test_refusals_name_line_field_and_way_out(lines: str, field: str, complaint: str) -> None:
    error = refusal_of(SMALL + lines)
    assert error.field == field
    assert str(error).startswith(f"job:3: {field}: ")
    assert complaint in str(error)
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "field", "complaint"),
    [
        ("name: digits", "command", "job:1: command: is required"),
        (
            "name: Digits!\ncommand: x",
            "name",
            '"Digits!" is not a valid name: write 1 to 40 of a-z',
        ),
        ("name: -a\ncommand: x", "name", "no - first"),
        (f"name: {'a' * 41}\ncommand: x", "name", "1 to 40"),
        ("name: a\ncommand: ''", "command", "is empty"),
        ("name: a\ncommand: x && y", "command", 'the command runs without a shell, so "&&"'),
        ("name: a\ncommand: x 'y", "command", "close the quotation"),
        ("name: a\ncommand: [x, '']", "command.1", "is empty"),
    ],
)
def test_name_and_command(text: str, field: str, complaint: str) -> None:
    error = refusal_of(text)
    assert error.field == field
    assert complaint in str(error)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "job: is empty: it must be a mapping with at least name and command"),
        ("- name: a", "job: must be a mapping"),
        ("name: [a", "job:1: not valid YAML"),
        ("name: a\n\tcommand: x", "job:2: not valid YAML: found character '\\t'"),
        ("name: a\nname: b", 'job:2: not valid YAML: the key "name" is given twice'),
        ("name: &a [*a]", "job:1: not valid YAML: found unconstructable recursive node"),
        ("--- {name: a}\n--- {name: b}", "job:2: not valid YAML: but found another document"),
        ("name: \x00", "job: not valid YAML"),
    ],
)
def test_what_is_no_job_file_at_all(text: str, complaint: str) -> None:
    error = str(refusal_of(text))
    assert error.startswith(complaint)
    assert len(error.splitlines()) == 1


def test_every_problem_is_a_line() -> None:
    error = refusal_of("name: a\nretries: x\ncommand: y\ninstances: {min: 0}\nfoo: 1")
    lines = str(error).splitlines()
    assert [line.split()[0] for line in lines] == ["job:4:", "job:2:", "job:5:"]
    assert error.field == "instances.min"


@pytest.mark.parametrize(
    "lines",
    [
        "secrets: {A: s3cret}",
        "secrets: {A: [s3cret]}",
        "secrets: {A: {value: s3cret}}",
        "secrets: {A: {variable: 's3cret!'}}",
        "secrets: {A: {file: {s3cret: 1}}}",
        "secrets: s3cret",
    ],
)
def test_a_secret_written_down_is_refused_and_not_repeated(lines: str) -> None:
    assert "s3cret" not in str(refusal_of(SMALL + lines))


def test_a_variable_is_defined_once() -> None:
    error = refusal_of(SMALL + "environment: {A: 1}\nsecrets: {A: {variable: A}}")
    assert "job:4: secrets: A is in environment too" in str(error)


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no\.yaml: no such file: .*castor new SCRIPT"):
        load_job(tmp_path / "no.yaml", NOW_SECONDS)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(SpecError, match="is not text in UTF-8"):
        load_job(tmp_path / "latin.yaml", NOW_SECONDS)


scalars = st.sampled_from(
    ["", "null", "-1", "0", "3", "x", "{}", "[]", "{a: 1}", "[x]", "4h", "on"]
)
keys = st.sampled_from(re.findall(r"^ *(\w+):", full_example(), re.MULTILINE))


@given(st.dictionaries(keys, scalars, max_size=5))
def test_any_mapping_is_a_job_or_a_refusal(mapping: dict[str, str]) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in mapping.items())
    try:
        load_job(text, NOW_SECONDS)
    except SpecError as refused:
        assert all(line.startswith("job") for line in str(refused).splitlines())
