"""Provider whose settings Terraform may change while the controller runs.

Changed pools replace the provider, as a restart of the controller would: the new provider reads
its instances from the cloud. The change waits until the cloud's lists show every earlier launch,
so that no cap is exceeded meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    CastorError,
    NotAllowed,
    NotFound,
    PermissionDenied,
    ProviderError,
    SpecError,
    Unavailable,
)
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.base import Condition, Provider, SpotScores
from providers.cloud.provider import CloudProvider
from providers.cloud.stock import parts_of
from providers.identity import IdentityVerifier, InstanceIdentity

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""Seconds between two reads of the settings."""


class HasPools(Protocol):
    """Settings of one cloud."""

    @property
    def pools(self) -> Mapping[str, object]:
        """Pools by name."""
        ...

    @property
    def zones(self) -> frozenset[str]:
        """Zones of all regions."""
        ...


Settings = TypeVar("Settings", bound=HasPools)


class PoolsSource(Generic[Settings]):
    """Source of the settings, with a copy in the folder `kept` of the settings last in force.

    `fetch` returns the text of a source. `parse` makes settings of a text and its origin.
    `trouble` is the reason why the copy lacks the settings in force, or None.
    """

    def __init__(
        self,
        source: str,
        kept: Path,
        fetch: Callable[[str], str],
        parse: Callable[[str, str], Settings],
    ) -> None:
        self.source = source
        self._fetch = fetch
        self._parse = parse
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        self._copy = kept / f"{name}.json"
        self._text: str | None = None
        self.trouble: str | None = None

    def read(self) -> Settings:
        """Return the current settings.

        Raises:
            SpecError: the settings can't be read or are invalid.
            ProviderError: the cloud did not return them.
        """
        text = self._fetch(self.source)
        settings = self._parse(text, self.source)
        self._text = text
        return settings

    def accept(self) -> None:
        """Save the text that was read last as the settings in force, if the disk has room."""
        if self._text is None:
            return
        try:
            self._save(self._text)
        except OSError as error:
            if self.trouble is None:
                _log.warning("%s: the pools can't be saved: %s", self._copy, error)
            self.trouble = (
                f"{self._copy}: the pools can't be saved for a start without the cloud: "
                f"{error.strerror or error}: make room on the disk or fix the folder's permissions"
            )
        else:
            self.trouble = None

    def recall(self) -> Settings | None:
        """Return the settings that were last in force; None if no usable copy exists."""
        try:
            return self._read_copy()
        except SpecError:
            return None

    def read_or_recall(self) -> Settings:
        """Return the current settings, or the saved ones if the cloud does not answer.

        Raises:
            SpecError: the settings can't be read or are invalid.
            NotFound, PermissionDenied: the settings are missing or may not be read.
            ProviderError: the cloud did not answer and no copy is usable.
        """
        try:
            return self.read()
        except (NotFound, PermissionDenied):
            raise
        except ProviderError as error:
            if not self._copy.exists():
                raise
            try:
                settings = self._read_copy()
            except SpecError as invalid:
                raise Unavailable(
                    f"{error}; the saved copy of the pools, {invalid}: start again once the cloud "
                    "answers, which replaces the copy"
                ) from error
            _log.warning("%s; using the pools that were last in force", error)
            return settings

    def _read_copy(self) -> Settings:
        """Return the settings of the copy.

        Raises:
            SpecError: no copy exists, or it is unreadable or invalid; the error names the copy.
        """
        try:
            text = self._copy.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{self._copy}: {error}") from error
        return self._parse(text, str(self._copy))

    def _save(self, text: str) -> None:
        if self._copy.exists() and self._copy.read_bytes() == text.encode():
            return
        self._copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._copy.with_suffix(".partial")
        with open(partial, "w", opener=_open_private) as file:
            file.write(text)
        partial.rename(self._copy)


class FollowingProvider(Provider, Generic[Settings]):
    """Provider that is replaced when the settings of `source` change.

    `connect` makes a provider from settings. `visible_seconds` is the maximum lag of the cloud's
    lists.
    """

    def __init__(
        self,
        source: PoolsSource[Settings],
        connect: Callable[[Settings], Provider],
        clock: Clock,
        visible_seconds: float,
    ) -> None:
        self._source = source
        self._connect = connect
        self._clock = clock
        self._visible_seconds = visible_seconds
        before = source.recall()
        self._settings = source.read_or_recall()
        if before is not None and before.zones - self._settings.zones:
            _require_no_stranded_instance(connect(before), self._settings)
        self._provider = connect(self._settings)
        source.accept()
        self._read_seconds = clock.now()
        self._launched_seconds = float("-inf")
        self._launches_under_way = 0
        self._lock = threading.Lock()
        self._next: Settings | None = None
        self._settings_error: str | None = None

    @property
    def identity(self) -> IdentityVerifier:
        """Verifier of identity proofs by the current settings."""
        return _CurrentVerifier(lambda: self._provider.identity)

    def offers(self) -> Sequence[Offer]:
        """Return the offers by the current settings, which are read again every minute."""
        self._follow()
        return self._provider.offers()

    def limits(self) -> Sequence[Limit]:
        """Return the limits of the settings and the cloud's quotas."""
        return self._provider.limits()

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance; see `Provider.launch`."""
        with self._launch_under_way() as provider:
            return provider.launch(request)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Request the end of instances; see `Provider.terminate`."""
        self._provider.terminate(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances; see `Provider.instances`."""
        return self._provider.instances()

    def interruptions(self) -> Sequence[Interruption]:
        """Return reclaim notices; see `Provider.interruptions`."""
        return self._provider.interruptions()

    def rehearse(self, offer_id: str) -> bool:
        """Ask whether a launch would be permitted; see `Provider.rehearse`."""
        return self._provider.rehearse(offer_id)

    def spot_scores(self, pool: str) -> SpotScores | None:
        """Return how likely spot instances can be had; see `Provider.spot_scores`."""
        return self._provider.spot_scores(pool)

    def console(self, instance_id: str) -> str:
        """Return an instance's console output; see `Provider.console`."""
        return self._provider.console(instance_id)

    def condition(self) -> Condition:
        """Return the cloud's status, with errors of reading, applying or saving the settings."""
        condition = self._provider.condition()
        errors = [error for error in (self._settings_error, self._source.trouble) if error]
        return replace(condition, troubles=(*condition.troubles, *errors))

    def _follow(self) -> None:
        now_seconds = self._clock.now()
        if now_seconds - self._read_seconds >= LOOK_SECONDS:
            self._read_seconds = now_seconds
            self._read_settings()
        if self._next is not None:
            self._replace_provider(self._next)

    def _read_settings(self) -> None:
        try:
            settings = self._source.read()
        except CastorError as error:
            if self._settings_error is None:
                _log.warning("the pools stay unchanged: %s", error)
            self._settings_error = f"the pools stay unchanged: {error}"
            return
        self._settings_error = None
        self._next = None if settings == self._settings else settings
        if self._next is None:
            self._source.accept()

    def _replace_provider(self, settings: Settings) -> None:
        with self._lock:
            quiet_seconds = self._clock.now() - self._launched_seconds
            if self._launches_under_way or quiet_seconds < self._visible_seconds:
                return
            try:
                if self._settings.zones - settings.zones:
                    _require_no_stranded_instance(self._provider, settings)
                self._provider = self._connect(settings)
            except SpecError as error:
                self._next = None
                self._settings_error = f"the pools stay unchanged: {error}"
                return
            except ProviderError as error:
                self._settings_error = f"the pools stay unchanged for now: {error}"
                return
            self._settings, self._next = settings, None
            self._source.accept()
        _log.info(
            "%s has changed: the pools are %s", self._source.source, ", ".join(settings.pools)
        )

    @contextmanager
    def _launch_under_way(self) -> Iterator[Provider]:
        with self._lock:
            self._launches_under_way += 1
            provider = self._provider
        try:
            yield provider
        finally:
            with self._lock:
                self._launches_under_way -= 1
                self._launched_seconds = self._clock.now()


class _CurrentVerifier(IdentityVerifier):
    def __init__(self, current: Callable[[], IdentityVerifier | None]) -> None:
        self._current = current

    def verify(self, proof: str) -> InstanceIdentity:
        verifier = self._current()
        if verifier is None:
            raise NotAllowed("this cloud signs no identity proofs")
        return verifier.verify(proof)


def _require_no_stranded_instance(provider: Provider, settings: HasPools) -> None:
    """Check that no instance runs in a zone that the new settings leave out.

    The new provider could neither list nor end such an instance.

    Raises:
        SpecError: an instance does; the error names the zones and the instances.
        ProviderError: the instances can't be listed, or not those of a zone that is left out.
    """
    stranded: dict[str, list[str]] = {}
    instances = provider.instances()
    for scope in sorted(_silent_scopes(provider)):
        if not any(zone.startswith(scope) for zone in settings.zones):
            raise Unavailable(
                f"{scope} does not answer, and the settings drop it: whether instances run there "
                "is not known"
            )
    for instance in instances:
        zone = _zone_of(instance)
        if instance.state is not CloudState.TERMINATED and zone and zone not in settings.zones:
            stranded.setdefault(zone, []).append(instance.id)
    if stranded:
        listing = "; ".join(
            f"{', '.join(sorted(stranded[zone]))} in {zone}" for zone in sorted(stranded)
        )
        raise SpecError(
            f"the settings drop zones in which instances run ({listing}): end the instances "
            "first, or restore the zones in Terraform"
        )


def _silent_scopes(provider: Provider) -> frozenset[str]:
    return provider.silent_scopes if isinstance(provider, CloudProvider) else frozenset()


def _zone_of(instance: CloudInstance) -> str:
    """Return the zone in the id of an instance's offer; empty if the id has none."""
    parts = parts_of(instance.offer)
    return "" if parts is None else parts.zone


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
