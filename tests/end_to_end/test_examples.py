"""Each example as a job on this machine: it grows, loses an instance, shrinks and ends.

Examples with packages that `make setup` does not install run with `make test-frameworks`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from autoscaler.domain.job import JobPhase
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.local_job import LocalJob, copy_example, kill

SLOW: Final = Path(__file__).parents[1] / "scripts" / "slow"
WAIT_SECONDS: Final = 180.0


@dataclass(frozen=True)
class Example:
    """Directory of examples/ whose job is tested.

    `options` replace those of its command; `{shared}` stands for a directory that all instances
    may write to. `packages` are imported by its script. `lost_steps` is the most that a loss
    of one of two instances may cost. `check` looks at the shared directory in the end.
    """

    name: str
    options: str
    packages: tuple[str, ...] = ()
    lost_steps: int = 1
    check: Callable[[Path], None] = lambda shared: None


def one_run_went_on(shared: Path) -> None:
    """Check that each tracker has one run, whose steps increase.

    A kill of the instance that logs, between a step and its log, may lose one value of each.
    """
    import mlflow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    client = mlflow.MlflowClient(f"sqlite:///{shared / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")]
    require_every_fifth(steps, steps[-1])
    events = EventAccumulator(str(shared / "tensorboard"))
    events.Reload()
    require_every_fifth([event.step for event in events.Scalars("loss")], steps[-1])
    writers = list((shared / "tensorboard").iterdir())
    assert len(writers) > 1, "another instance has gone on with the run"
    runs = {path.name for path in shared.glob("wandb/offline-run-*/*.wandb")}
    assert runs == {"run-trackers.wandb"}


def require_every_fifth(steps: list[int], last_step: int) -> None:
    """Check that steps are every fifth one in order, of which one may be missing."""
    every_fifth = range(5, last_step + 1, 5)
    assert steps == sorted(set(steps) & set(every_fifth)) and len(steps) >= len(every_fifth) - 1


PLAIN: Final = (
    Example("digits", "--epochs 40"),
    Example("chargpt", "--epochs 4 --examples 2048"),
    Example("gan", "--epochs 20"),
    Example("fsdp2", "--epochs 4 --examples 2048"),
)
WITH_LIBRARIES: Final = (
    Example("huggingface", "--epochs 4", ("transformers", "accelerate")),
    Example("lightning", "--epochs 20", ("lightning",)),
    Example("accelerate", "--epochs 20", ("accelerate",)),
    Example(
        "trackers",
        "--epochs 20 --directory {shared}",
        ("mlflow", "wandb", "tensorboard"),
        check=one_run_went_on,
    ),
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Yield a controller with instances on this machine."""
    with Deployment(tmp_path_factory.mktemp("examples"), {}).running() as running:
        yield running
        running.castor("drain", "--all", "-y")


def job_file(example: Example, directory: Path, shared: Path) -> Path:
    """Copy an example, and return its job file: on one instance, and slow until `hurry` exists."""
    path = copy_example(example.name, directory)
    document = yaml.safe_load(path.read_text())
    program = document["command"].partition(" --")[0]
    document["command"] = f"{program} {example.options.format(shared=shared)}"
    # This machine may have two cores only: an instance has one, and a sharded model one part.
    document["instances"] |= {"min": 1, "max": 1, "offers": ["local-small"]}
    document.pop("parallelism", None)
    document["objective"] = "fastest"
    document["checkpoint"] = {"interval": "5s"}
    slow = {"PYTHONPATH": str(SLOW), "SLOW_UNTIL": str(shared / "hurry")}
    document["environment"] = {**document.get("environment", {}), **slow}
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", PLAIN, ids=lambda example: example.name)
def test_an_example_grows_loses_an_instance_shrinks_and_ends(
    example: Example, deployment: Deployment, tmp_path: Path, shared: Path
) -> None:
    resize_and_kill(example, deployment, tmp_path, shared)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", WITH_LIBRARIES, ids=lambda example: example.name)
def test_an_example_with_libraries_does_so_too(
    example: Example, deployment: Deployment, tmp_path: Path, shared: Path
) -> None:
    missing = [name for name in example.packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: make test-frameworks")
    resize_and_kill(example, deployment, tmp_path, shared)


def resize_and_kill(
    example: Example, deployment: Deployment, tmp_path: Path, shared: Path
) -> None:
    """Run an example on 1, 2, 2 and 1 instances, of which one is killed, until its end."""
    deployment.castor("submit", job_file(example, tmp_path, shared))
    job = LocalJob(deployment, example.name, WAIT_SECONDS)
    job.wait_for_instances(1)
    job.set_size(2)
    lost, _ = job.wait_for_instances(2)
    before = job.step
    kill(lost)
    job.wait_for_instances(2, without=lost.id)
    job.wait_for(lambda: job.step >= before - example.lost_steps, "the progress")
    job.set_size(1)
    job.wait_for_instances(1)
    (shared / "hurry").touch()
    ended = job.wait_for_end()
    assert ended.phase is JobPhase.FINISHED, ended.cause
    assert ended.attempt == 1, "the job was not restarted"
    assert not [event.text for event in ended.events if re.search("early", event.kind)]
    example.check(shared)
