"""The instance as every part of its agent sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.node.disk import Disk
from autoscaler.node.power import PowerButton
from autoscaler.node.process import Process
from providers.metadata import InstanceMetadata


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How an agent is to behave.

    `launcher` are the arguments with which the job's Python starts ranks; their number and the
    job's command follow.
    """

    launcher: tuple[str, ...] = ("-P", "-m", "autoscaler.training.launch")


DEFAULT_SETTINGS: Final = NodeSettings()


@dataclass(frozen=True, slots=True)
class Instance:
    """`name` is the controller's; `environment` is what the agent's passes on.

    It is made when the agent starts: the `power` button is then its parent.
    """

    name: str
    metadata: InstanceMetadata
    disk: Disk
    environment: Mapping[str, str]
    settings: NodeSettings = DEFAULT_SETTINGS
    power: PowerButton = field(default_factory=PowerButton)

    def process(self, record: Path) -> Process:
        """The process with this record. Its shim carries the instance's mark, too."""
        environment = {**self.environment, **self.metadata.environment()}
        return Process(record, self.disk.log, environment)
