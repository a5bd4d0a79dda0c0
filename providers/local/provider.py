"""A cloud on this machine: instances are process trees, devices are CPU cores.

Every path a cloud takes can be walked with it: boot delays, capacity, spot reclaims with notice,
machines that die. All it knows is in one directory, and instances are processes of their own, so
a controller may die at any line and the next one finds what runs. Deployments that share the
directory share its cores and don't see each other's instances; directories beside each other
would sell the same cores twice.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    Unavailable,
)
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    CloudState,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from providers.base import Provider
from providers.local.bill import BilledInstance, bill_instance
from providers.local.host import LocalHost
from providers.local.instance import InstanceRecord, LocalInstance
from providers.local.settings import LocalSettings
from providers.metadata import reclaim_notice

_log = logging.getLogger(__name__)

ENDED_KEPT_SECONDS = 24 * 3600.0
# Of instances that ended lately, so many keep their disks; of the others, only for a while.
ENDED_DISKS_KEPT = 20
DISK_KEPT_SECONDS = 600.0
"""So long an ended instance is listed and keeps its disk; its record stays for ever."""
# An instance that has nothing left to do ends within this time; others end after the call.
_END_SECONDS = 0.5
_LOOK_SECONDS = 0.02


class LocalProvider(Provider):
    """Sells this machine's cores to the deployment `controller`. Linux only.

    Launches carry the time of `clock`. Ends carry the system's: they happen in processes of their
    own.
    """

    def __init__(
        self, directory: Path, controller: str, settings: LocalSettings, clock: Clock
    ) -> None:
        if not Path("/proc/thread-self/children").exists():
            raise ProviderError("local instances need Linux with CONFIG_PROC_CHILDREN")
        self._directory = directory
        self._controller = controller
        self._settings = settings
        self._clock = clock
        with self._host_trouble():
            self._host = LocalHost(directory, settings.inherited, clock)

    @property
    def identity(self) -> None:
        """Nobody signs who an instance is: whoever could take its token is on this machine."""
        return None

    def offers(self) -> Sequence[Offer]:
        """The catalogue of the settings."""
        return self._settings.catalogue

    def limits(self) -> Sequence[Limit]:
        """The cores there are. Other deployments may hold some of them."""
        return (Limit("local devices", LimitUnit.DEVICES, len(self._settings.devices)),)

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one of this token, which may have ended.

        Raises:
            InsufficientCapacity: not as many cores are free.
            PermissionDenied: the tags name another deployment; nothing was launched.
            NotFound: there is no such offer; nothing was launched.
            Unavailable: the disk or the kernel failed; the same call completes the launch.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        with self._host_trouble(), self._host.alone():
            self._host.attend()
            self._discard_old()
            instance = self._find(self._id(request.token))
            if instance is None:
                instance = self._host.add(self._record(request), request.user_data)
            if not instance.has_started and instance.end is None:
                raise Unavailable(f"{instance.record.id} can't boot: see {instance.console}")
            return self._told(instance)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Order the end of those of them that this deployment owns, and wait for it a moment."""
        with self._host_trouble():
            ending = [each for each in self._held() if each.record.id in instance_ids]
            for instance in ending:
                instance.tell_to_end()
            waited_seconds = 0.0
            while waited_seconds < _END_SECONDS and any(each.end is None for each in ending):
                self._clock.sleep(_LOOK_SECONDS)
                waited_seconds += _LOOK_SECONDS

    def instances(self) -> Sequence[CloudInstance]:
        """What this deployment owns. Lost machines and half-done launches are seen to first."""
        with self._host_trouble():
            if any(instance.is_unattended for instance in self._host.instances()):
                with self._host.alone():
                    self._host.attend()
            return [self._told(instance) for instance in self._own() if not self._is_old(instance)]

    def interruptions(self) -> Sequence[Interruption]:
        """Notices of instances that have not ended."""
        found = []
        with self._host_trouble():
            for instance in self._held():
                reclaim_seconds = reclaim_notice(instance.metadata)
                if reclaim_seconds is not None:
                    given_seconds = reclaim_seconds - instance.record.notice_period_seconds
                    found.append(Interruption(instance.record.id, given_seconds, reclaim_seconds))
        return found

    def reclaim(self, instance_id: str) -> None:
        """Take an instance back as a cloud does: notice first, then the end.

        Raises:
            NotFound: this deployment holds no such instance.
        """
        with self._host_trouble():
            instance = self._find(instance_id)
            if instance is None or instance.end is not None:
                raise NotFound(f"{instance_id}: no instance of this name is held")
            instance.tell_to_be_reclaimed()

    def bill(self) -> Sequence[BilledInstance]:
        """What this cloud charges the deployment, by its own records; running ones up to now."""
        with self._host_trouble():
            return [bill_instance(instance, self._clock.now()) for instance in self._own()]

    @contextmanager
    def _host_trouble(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise Unavailable(f"local instances in {self._directory}: {error}") from error

    def _own(self) -> list[LocalInstance]:
        return [
            instance
            for instance in self._host.instances()
            if instance.record.tags[CONTROLLER_TAG] == self._controller
        ]

    def _held(self) -> list[LocalInstance]:
        return [instance for instance in self._own() if instance.end is None]

    def _find(self, instance_id: str) -> LocalInstance | None:
        return next((one for one in self._own() if one.record.id == instance_id), None)

    def _is_old(self, instance: LocalInstance) -> bool:
        end = instance.end
        return end is not None and self._clock.now() - end.ended_seconds > ENDED_KEPT_SECONDS

    def _discard_old(self) -> None:
        """Delete disks of ended instances; a failed deletion is retried at the next launch.

        The order and the end of each instance stay, as the bill is made of them.
        """
        ends = [(each.end.ended_seconds, each) for each in self._own() if each.end is not None]
        ends.sort(key=lambda end: end[0], reverse=True)
        for place, (ended_seconds, instance) in enumerate(ends):
            kept = ENDED_KEPT_SECONDS if place < ENDED_DISKS_KEPT else DISK_KEPT_SECONDS
            try:
                if self._clock.now() - ended_seconds > kept:
                    instance.discard()
            except OSError as error:
                _log.warning("%s stays on the disk: %s", instance.path, error)

    def _id(self, token: str) -> str:
        """One token, one name, one directory: a second instance of a token has no place."""
        digest = hashlib.sha256(f"{self._controller}\n{token}".encode()).hexdigest()
        return f"i-{digest[:16]}"

    def _record(self, request: LaunchRequest) -> InstanceRecord:
        offer = next((one for one in self._settings.catalogue if one.id == request.offer), None)
        if offer is None:
            known = ", ".join(one.id for one in self._settings.catalogue)
            raise NotFound(f"offer {request.offer}: not sold here; there are {known}")
        everything = self._host.instances()
        return InstanceRecord(
            id=self._id(request.token),
            token=request.token,
            offer=offer.id,
            usd_per_hour=offer.usd_per_hour,
            minimum_billed_seconds=offer.minimum_billed_seconds,
            devices=self._free_devices(offer, everything),
            tags=dict(request.tags),
            launched_seconds=self._clock.now(),
            boot_seconds=offer.boot_seconds,
            reclaim_after_seconds=self._lifetime_seconds(offer, len(everything)),
            notice_period_seconds=self._settings.notice_period_seconds,
            grace_seconds=self._settings.grace_seconds,
            agent=self._settings.agent,
        )

    def _free_devices(self, offer: Offer, everything: Sequence[LocalInstance]) -> tuple[int, ...]:
        taken = {
            device
            for instance in everything
            if instance.end is None
            for device in instance.record.devices
        }
        free = [device for device in self._settings.devices if device not in taken]
        if len(free) < offer.devices:
            raise InsufficientCapacity(
                f"{offer.id} takes {offer.devices} cores and {len(free)} are free: "
                "end an instance or wait for one to end"
            )
        return tuple(free[: offer.devices])

    def _lifetime_seconds(self, offer: Offer, ordinal: int) -> float | None:
        """When the hazard strikes the instance number `ordinal` of the directory."""
        if offer.reclaims_per_hour == 0:
            return None
        chance = random.Random(f"{self._settings.seed}/{ordinal}")
        return chance.expovariate(offer.reclaims_per_hour / 3600.0)

    def _told(self, instance: LocalInstance) -> CloudInstance:
        record, end = instance.record, instance.end
        return CloudInstance(
            id=record.id,
            token=record.token,
            offer=record.offer,
            state=self._living_state(instance) if end is None else CloudState.TERMINATED,
            tags=record.tags,
            launched_seconds=record.launched_seconds,
            ended_seconds=None if end is None else end.ended_seconds,
        )

    def _living_state(self, instance: LocalInstance) -> CloudState:
        reclaim_seconds = reclaim_notice(instance.metadata)
        is_reclaimed = reclaim_seconds is not None and reclaim_seconds <= self._clock.now()
        if instance.is_told_to_end or is_reclaimed:
            return CloudState.STOPPING
        return CloudState.RUNNING if instance.is_running else CloudState.PENDING
