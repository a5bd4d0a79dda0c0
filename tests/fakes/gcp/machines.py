"""Machines of a fake project's instances, with the startup script of their template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fakes.gcp import lifecycle, subscriptions
from tests.fakes.gcp.geography import ZONES, region_of
from tests.fakes.gcp.identity import TokenSigner, signer
from tests.fakes.gcp.project import Instance, Project
from tests.fakes.gcp.server import FakeGcp
from tests.fakes.machines import BootConfiguration, Machines, NoticeSource, Power

_METADATA: Final = "http://169.254.169.254"
_STORAGE: Final = "https://storage.googleapis.com"
_POWER: Final = {"RUNNING": Power.ON, "STOPPING": Power.GOING}


class GcpMachines(Machines):
    """Machines of one project. An instance's id is ``ZONE/NAME``."""

    def __init__(self, fake: FakeGcp, project: str, directory: Path) -> None:
        self.fake = fake
        self._project = project
        self._reclaims: dict[str, float] = {}
        super().__init__(directory)

    @property
    def project(self) -> Project:
        return self.fake.front.project(self._project)

    def alive(self) -> list[str]:
        return sorted(
            _id(instance) for instance in self._existing() if instance.ended_seconds is None
        )

    def remaining(self) -> list[str]:
        return sorted(_id(instance) for instance in self._existing())

    @property
    def launched(self) -> int:
        return len(self.project.history)

    def reclaim(self, instance_id: str, notice_seconds: float, source: NoticeSource) -> None:
        """Preempt an instance, with notice by its metadata server or in the audit log alone."""
        name = instance_id.partition("/")[2]
        if source is NoticeSource.METADATA:
            lifecycle.preempt(self.project, name, ahead_seconds=notice_seconds)
            return
        project, instance = self.project, self.project.instance(name)
        with project.lock:
            now = project.clock.now()
            self._reclaims[instance_id] = now + notice_seconds
            subscriptions.log(project, instance, "compute.instances.preempted", now)

    def region_of(self, instance_id: str) -> str:
        return region_of(instance_id.partition("/")[0])

    def sell_out(self, region: str) -> None:
        for zone in (zone for zone in ZONES if region_of(zone) == region):
            for purchase in ("SPOT", "STANDARD"):
                self.project.capacity["g2-standard-4", zone, purchase] = 0

    def forge(self, is_forging: bool) -> None:
        self.project.signer = TokenSigner(signer().name) if is_forging else None

    def _pass_time(self) -> None:
        with self.project.lock:
            now = self.project.now()
            for instance_id in self.alive():
                if self._reclaims.get(instance_id, now + 1) <= now:
                    lifecycle.take(self.project, instance_id.partition("/")[2])

    def _power(self) -> Mapping[str, Power]:
        return {
            _id(instance): _POWER[instance.status]
            for instance in self._existing()
            if instance.status in _POWER
        }

    def _power_off(self, instance_id: str) -> None:
        with self.project.lock:
            if instance_id in self.alive():  # unless it was deleted meanwhile
                lifecycle.shut_down(self.project, instance_id.partition("/")[2])

    def _boot_configuration(self, instance_id: str) -> BootConfiguration:
        name = instance_id.partition("/")[2]
        instance = self.project.instance(name)
        instance.address = "127.0.0.1"
        metadata = {item["key"]: item["value"] for item in instance.body["metadata"]["items"]}
        return BootConfiguration(
            metadata["startup-script"],
            {_METADATA: self.fake.metadata_url(self._project, name), _STORAGE: self.fake.url},
        )

    def _existing(self) -> list[Instance]:
        project = self.project
        with project.lock:
            project.now()
            return list(project.instances.values())


def _id(instance: Instance) -> str:
    """Return the provider's id of an instance."""
    return f"{instance.zone}/{instance.name}"
