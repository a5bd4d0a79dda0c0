"""The instance as every part of its agent sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoscaler.node.disk import Disk
from autoscaler.node.process import Process
from providers.metadata import InstanceMetadata


@dataclass(frozen=True, slots=True)
class Instance:
    """`name` is the controller's; `environment` is what the agent's passes on."""

    name: str
    metadata: InstanceMetadata
    disk: Disk
    environment: Mapping[str, str]

    def process(self, record: Path) -> Process:
        """The process with this record. Its shim carries the instance's mark, too."""
        environment = {**self.environment, **self.metadata.environment()}
        return Process(record, self.disk.log, environment)
