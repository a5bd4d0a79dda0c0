"""Instance, as all parts of its agent see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.node.disk import Disk
from autoscaler.node.power import PowerButton
from autoscaler.node.shims.process import Process
from providers.metadata import InstanceMetadata


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of an agent.

    `launcher` are the arguments of the job's Python that start ranks; the number of ranks and the
    job's command follow.
    """

    launcher: tuple[str, ...] = ("-P", "-m", "autoscaler.training.launch")


DEFAULT_SETTINGS: Final = NodeSettings()


@dataclass(frozen=True, slots=True)
class Instance:
    """Instance, with the environment that its processes inherit.

    `name` is the id of the instance at the controller. Create this object when the agent starts,
    because `power` records the parent process.
    """

    name: str
    metadata: InstanceMetadata
    disk: Disk
    environment: Mapping[str, str]
    settings: NodeSettings = DEFAULT_SETTINGS
    power: PowerButton = field(default_factory=PowerButton)

    def process(self, record: Path) -> Process:
        """Return the process with this record file; its shim has the instance's variables too."""
        environment = {**self.environment, **self.metadata.environment()}
        return Process(record, self.disk.log, environment)
