"""The instance as every part of its agent sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.node.disk import Disk
from autoscaler.node.process import Process
from providers.metadata import InstanceMetadata


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How an agent is to behave.

    A script that was told to leave is ended after `drain_seconds`. `launcher` are the arguments
    with which the job's Python starts ranks; their number and the job's command follow.
    """

    drain_seconds: float = 60.0
    launcher: tuple[str, ...] = ("-P", "-m", "autoscaler.training.launch")


DEFAULT_SETTINGS: Final = NodeSettings()


@dataclass(frozen=True, slots=True)
class Instance:
    """`name` is the controller's; `environment` is what the agent's passes on."""

    name: str
    metadata: InstanceMetadata
    disk: Disk
    environment: Mapping[str, str]
    settings: NodeSettings = DEFAULT_SETTINGS

    def process(self, record: Path) -> Process:
        """The process with this record. Its shim carries the instance's mark, too."""
        environment = {**self.environment, **self.metadata.environment()}
        return Process(record, self.disk.log, environment)
