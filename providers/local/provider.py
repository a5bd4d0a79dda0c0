"""Provider on this machine: instances are process trees, devices are CPU cores.

It exercises what a cloud does: boot delays, capacity, spot reclaims with notice, and lost
machines. All state is in one directory, and instances are processes of their own. After a crash of
the controller, the next one finds the running instances. Deployments that share the directory
share its cores and do not see each other's instances. Two directories on one machine would sell
the same cores twice.
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
"""Seconds for which an ended instance is listed; its record stays forever."""
ENDED_DISKS_KEPT = 20
"""Number of recently ended instances that keep their disks while they are listed."""
DISK_KEPT_SECONDS = 600.0
"""Seconds for which all other ended instances keep their disks."""
# Wait of `terminate` for ends; an idle instance ends within this time, others after the call.
_MAX_END_WAIT_SECONDS = 0.5
_POLL_SECONDS = 0.02
_MOST_CONSOLE = 65_536


class LocalProvider(Provider):
    """Provider of this machine's cores for the deployment `controller`. Linux only.

    Launch times are of `clock`. End times are of the system clock, since the machines are
    processes of their own.
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
        with self._host_errors():
            self._host = LocalHost(directory, settings.inherited, clock)

    @property
    def identity(self) -> None:
        """Always None: a token could only be stolen on this machine, so no identity is signed."""
        return None

    def offers(self) -> Sequence[Offer]:
        """Return the catalogue of the settings."""
        return self._settings.catalogue

    def limits(self) -> Sequence[Limit]:
        """Return the number of cores as a limit. Other deployments may hold some of the cores."""
        devices, place = len(self._settings.devices), "castor serve --devices"
        return (Limit("local devices", LimitUnit.DEVICES, devices, place=place),)

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the instance of this token, which may have ended.

        Raises:
            InsufficientCapacity: too few cores are free.
            PermissionDenied: the tags name another deployment; nothing was launched.
            NotFound: no such offer exists; nothing was launched.
            Unavailable: the disk or the kernel failed; repeat the same call to complete the
                launch.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        with self._host_errors(), self._host.alone():
            self._host.attend()
            self._discard_old()
            instance = self._find(self._id(request.token))
            if instance is None:
                instance = self._host.add(self._record(request), request.user_data)
            if not instance.has_started and instance.end is None:
                raise Unavailable(f"{instance.record.id} can't boot: see {instance.console}")
            return self._described(instance)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Request the end of this deployment's instances, and wait up to 0.5 s for it."""
        with self._host_errors():
            ending = [
                instance for instance in self._running() if instance.record.id in instance_ids
            ]
            for instance in ending:
                instance.tell_to_end()
            waited_seconds = 0.0
            while waited_seconds < _MAX_END_WAIT_SECONDS and any(
                instance.end is None for instance in ending
            ):
                self._clock.sleep(_POLL_SECONDS)
                waited_seconds += _POLL_SECONDS

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances, after handling lost machines and partial starts."""
        with self._host_errors():
            if any(instance.is_unattended for instance in self._host.instances()):
                with self._host.alone():
                    self._host.attend()
            return [
                self._described(instance) for instance in self._own() if not self._is_old(instance)
            ]

    def console(self, instance_id: str) -> str:
        """Return the last 64 KiB of what machine and agent have printed."""
        with self._host_errors():
            for instance in self._own():
                if instance.record.id == instance_id and instance.console.exists():
                    return instance.console.read_text(errors="replace")[-_MOST_CONSOLE:]
        return ""

    def interruptions(self) -> Sequence[Interruption]:
        """Return the reclaim notices of instances that have not ended."""
        interruptions = []
        with self._host_errors():
            for instance in self._running():
                reclaim_seconds = reclaim_notice(instance.metadata)
                if reclaim_seconds is not None:
                    given_seconds = reclaim_seconds - instance.record.notice_period_seconds
                    interruptions.append(
                        Interruption(instance.record.id, given_seconds, reclaim_seconds)
                    )
        return interruptions

    def reclaim(self, instance_id: str) -> None:
        """Reclaim an instance as a cloud does: notice first, then the end.

        Raises:
            NotFound: the deployment has no such running instance.
        """
        with self._host_errors():
            instance = self._find(instance_id)
            if instance is None or instance.end is not None:
                raise NotFound(
                    f"{instance_id}: no running instance has this id: castor status JOB lists "
                    "those that run"
                )
            instance.tell_to_be_reclaimed()

    def bill(self) -> Sequence[BilledInstance]:
        """Return the deployment's bill by this cloud's own records, running ones up to now."""
        with self._host_errors():
            return [bill_instance(instance, self._clock.now()) for instance in self._own()]

    @contextmanager
    def _host_errors(self) -> Iterator[None]:
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

    def _running(self) -> list[LocalInstance]:
        return [instance for instance in self._own() if instance.end is None]

    def _find(self, instance_id: str) -> LocalInstance | None:
        return next(
            (instance for instance in self._own() if instance.record.id == instance_id), None
        )

    def _is_old(self, instance: LocalInstance) -> bool:
        end = instance.end
        return end is not None and self._clock.now() - end.ended_seconds > ENDED_KEPT_SECONDS

    def _discard_old(self) -> None:
        """Delete disks of ended instances; the next launch retries a failed deletion.

        Each instance's request and end are kept for the bill.
        """
        ends = [
            (instance.end.ended_seconds, instance)
            for instance in self._own()
            if instance.end is not None
        ]
        ends.sort(key=lambda end: end[0], reverse=True)
        for rank, (ended_seconds, instance) in enumerate(ends):
            kept_seconds = ENDED_KEPT_SECONDS if rank < ENDED_DISKS_KEPT else DISK_KEPT_SECONDS
            try:
                if self._clock.now() - ended_seconds > kept_seconds:
                    instance.discard()
            except OSError as error:
                _log.warning("%s can't be deleted: %s", instance.path, error)

    def _id(self, token: str) -> str:
        """Return the instance id of a token.

        An id is a directory's name, so a token can't have a second instance.
        """
        digest = hashlib.sha256(f"{self._controller}\n{token}".encode()).hexdigest()
        return f"i-{digest[:16]}"

    def _record(self, request: LaunchRequest) -> InstanceRecord:
        offer = next(
            (offered for offered in self._settings.catalogue if offered.id == request.offer), None
        )
        if offer is None:
            known_ids = ", ".join(offered.id for offered in self._settings.catalogue)
            raise NotFound(f"offer {request.offer}: not sold here; there are {known_ids}")
        all_instances = self._host.instances()
        return InstanceRecord(
            id=self._id(request.token),
            token=request.token,
            offer=offer.id,
            usd_per_hour=offer.usd_per_hour,
            minimum_billed_seconds=offer.minimum_billed_seconds,
            devices=self._free_devices(offer, all_instances),
            tags=dict(request.tags),
            launched_seconds=self._clock.now(),
            boot_seconds=offer.boot_seconds,
            reclaim_after_seconds=self._lifetime_seconds(offer, len(all_instances)),
            notice_period_seconds=self._settings.notice_period_seconds,
            grace_seconds=self._settings.grace_seconds,
            agent=self._settings.agent,
        )

    def _free_devices(
        self, offer: Offer, all_instances: Sequence[LocalInstance]
    ) -> tuple[int, ...]:
        taken = {
            device
            for instance in all_instances
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
        """Return the drawn lifetime of instance number `ordinal`; None means no reclaim."""
        if offer.reclaims_per_hour == 0:
            return None
        rng = random.Random(f"{self._settings.seed}/{ordinal}")
        return rng.expovariate(offer.reclaims_per_hour / 3600.0)

    def _described(self, instance: LocalInstance) -> CloudInstance:
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
