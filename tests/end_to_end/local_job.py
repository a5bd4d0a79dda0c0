"""Job of a test on this machine's instances, and the loss of one of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import InstanceView, JobView
from tests.builders.waiting import wait_until
from tests.end_to_end.deployment import Deployment

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_LOG_CHARACTERS: Final = 4000


class LocalJob:
    """Job of a deployment on this machine. `wait_seconds` is the longest wait for a condition."""

    def __init__(self, deployment: Deployment, name: str, wait_seconds: float) -> None:
        self.deployment = deployment
        self._client = deployment.client()
        self._name = name
        self._wait_seconds = wait_seconds

    def view(self) -> JobView:
        """Return the job as the controller has it."""
        return self._client.job(self._name)

    @property
    def step(self) -> int:
        """Steps of the last report; 0 without one."""
        report = self.view().report
        return 0 if report is None else report.step

    def set_size(self, instances: int) -> None:
        """Let the job have so many instances, no fewer and no more."""
        self.deployment.castor("set", self._name, f"min={instances}", f"max={instances}")

    def wait_for_instances(
        self,
        count: int,
        without: str | None = None,
        is_met: Callable[[JobView], bool] = lambda job: True,
    ) -> list[InstanceView]:
        """Wait until the job has exactly `count` instances that all train, and return them.

        Args:
            count: number of instances.
            without: id of an instance that must have ended.
            is_met: further condition on the job.
        """

        def training() -> list[InstanceView]:
            job = self.view()
            alive = [held for held in job.instances if held.phase is not InstancePhase.ENDED]
            are_training = all(held.phase is InstancePhase.TRAINING for held in alive)
            has_left = without not in {held.id for held in alive}
            return (
                alive if len(alive) == count and are_training and has_left and is_met(job) else []
            )

        return self.wait_for(training, f"{count} instances that train")  # type: ignore[no-any-return]

    def wait_for(self, condition: Callable[[], Any], description: str) -> Any:
        """Wait until `condition` is true, and return its value.

        Raises:
            AssertionError: the job has failed, or the wait was too long; with the job and its log.
        """

        def checked() -> Any:
            job = self.view()
            assert job.phase is not JobPhase.FAILED, job.cause
            return condition()

        try:
            return wait_until(checked, seconds=self._wait_seconds, description=description)
        except AssertionError as error:
            log = self.deployment.castor("logs", self._name)[-_LOG_CHARACTERS:]
            raise AssertionError(f"{error}\n{self.view()}\n{log}") from None

    def wait_for_end(self) -> JobView:
        """Wait until the job has ended, and return it."""
        self.wait_for(lambda: self.view().phase.is_final, "the end of the job")
        return self.view()


def kill(instance: InstanceView) -> None:
    """Kill an instance with all its processes, at once."""
    assert instance.cloud_id is not None
    (machine,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "providers.local.machine" in (process.info["cmdline"] or [])
        and any(word.endswith(instance.cloud_id) for word in process.info["cmdline"])
    ]
    for process in [machine, *machine.children(recursive=True)]:
        process.kill()


def copy_example(name: str, directory: Path) -> Path:
    """Copy the files of an example below `directory`, and return its job file."""
    target = directory / name
    shutil.copytree(EXAMPLES / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target / "job.yaml"
