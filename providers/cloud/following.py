"""A cloud by settings that Terraform may change while the controller runs.

A change of the pools is to its provider what a restart of the controller is: what it knew is
found again in the cloud. It is taken up only once every launch of before is in the cloud's lists,
so that no cap is passed in between.
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
)
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.base import Condition, Provider
from providers.identity import IdentityVerifier, InstanceIdentity

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0


class HasPools(Protocol):
    """The settings of one cloud."""

    @property
    def pools(self) -> Mapping[str, object]:
        """The pools by name."""
        ...

    @property
    def zones(self) -> frozenset[str]:
        """The zones of all regions."""
        ...


Settings = TypeVar("Settings", bound=HasPools)


class PoolsSource(Generic[Settings]):
    """Where the settings are, and a copy in `kept` of what was read there last.

    `fetch` gets the text of a source, and `parse` makes settings of a text and its origin.
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

    def read(self) -> Settings:
        """The settings of now.

        Raises:
            SpecError: they can't be read or used.
            ProviderError: the cloud did not give them.
        """
        self._text = self._fetch(self.source)
        return self._parse(self._text, self.source)

    def accept(self) -> None:
        """Keep what was read last as the settings in force."""
        if self._text is not None:
            self._keep(self._text)

    def recall(self) -> Settings | None:
        """Return the settings that were in force last; None if there are none that can be used."""
        try:
            return self._parse(self._copy.read_text(), self.source)
        except (OSError, SpecError):
            return None

    def read_or_recall(self) -> Settings:
        """As `read`; those of the last time where the cloud does not answer.

        Raises:
            SpecError: they can't be read or used.
            ProviderError: the cloud did not give them, and never did, or they are not to be had.
        """
        try:
            return self.read()
        except (NotFound, PermissionDenied):
            raise
        except ProviderError as error:
            if not self._copy.exists():
                raise
            _log.warning("%s; the pools are those of the last start", error)
            return self._parse(self._copy.read_text(), self.source)

    def _keep(self, text: str) -> None:
        if self._copy.exists() and self._copy.read_text() == text:
            return
        self._copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._copy.with_suffix(".partial")
        with open(partial, "w", opener=_private) as file:
            file.write(text)
        partial.rename(self._copy)


class FollowingProvider(Provider, Generic[Settings]):
    """A provider by the settings of `source`, and another one when these have changed.

    `connect` makes one; `visible_seconds` is how long the cloud's lists may lag.
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
            _require_nothing_left(connect(before), self._settings)
        self._provider = connect(self._settings)
        source.accept()
        self._looked_seconds = clock.now()
        self._launched_seconds = float("-inf")
        self._launching = 0
        self._lock = threading.Lock()
        self._next: Settings | None = None
        self._trouble: str | None = None

    @property
    def identity(self) -> IdentityVerifier:
        """What checks the proofs of instances, by the settings of the moment."""
        return _PresentVerifier(lambda: self._provider.identity)

    def offers(self) -> Sequence[Offer]:
        """Those of the settings of now, which are looked at every minute."""
        self._look()
        return self._provider.offers()

    def limits(self) -> Sequence[Limit]:
        """Those of the settings and the account."""
        return self._provider.limits()

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """As `Provider.launch`."""
        with self._launch_under_way() as provider:
            return provider.launch(request)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """As `Provider.terminate`."""
        self._provider.terminate(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """As `Provider.instances`."""
        return self._provider.instances()

    def interruptions(self) -> Sequence[Interruption]:
        """As `Provider.interruptions`."""
        return self._provider.interruptions()

    def condition(self) -> Condition:
        """That of the cloud, and whether the settings can be read."""
        found = self._provider.condition()
        if self._trouble is None:
            return found
        return replace(found, troubles=(*found.troubles, self._trouble))

    def _look(self) -> None:
        now_seconds = self._clock.now()
        if now_seconds - self._looked_seconds >= LOOK_SECONDS:
            self._looked_seconds = now_seconds
            self._read()
        if self._next is not None:
            self._change_over(self._next)

    def _read(self) -> None:
        try:
            found = self._source.read()
        except CastorError as error:
            if self._trouble is None:
                _log.warning("the pools stay as they are: %s", error)
            self._trouble = f"the pools stay as they are: {error}"
            return
        self._trouble = None
        self._next = None if found == self._settings else found

    def _change_over(self, settings: Settings) -> None:
        with self._lock:
            quiet_seconds = self._clock.now() - self._launched_seconds
            if self._launching or quiet_seconds < self._visible_seconds:
                return
            try:
                if self._settings.zones - settings.zones:
                    _require_nothing_left(self._provider, settings)
                self._provider = self._connect(settings)
            except SpecError as error:
                self._next = None
                self._trouble = f"the pools stay as they are: {error}"
                return
            except ProviderError as error:
                self._trouble = f"the pools stay as they are for now: {error}"
                return
            self._settings, self._next = settings, None
            self._source.accept()
        _log.info(
            "%s has changed: the pools are %s", self._source.source, ", ".join(settings.pools)
        )

    @contextmanager
    def _launch_under_way(self) -> Iterator[Provider]:
        with self._lock:
            self._launching += 1
            provider = self._provider
        try:
            yield provider
        finally:
            with self._lock:
                self._launching -= 1
                self._launched_seconds = self._clock.now()


class _PresentVerifier(IdentityVerifier):
    def __init__(self, present: Callable[[], IdentityVerifier | None]) -> None:
        self._present = present

    def verify(self, proof: str) -> InstanceIdentity:
        verifier = self._present()
        if verifier is None:
            raise NotAllowed("this cloud signs no proofs")
        return verifier.verify(proof)


def _require_nothing_left(provider: Provider, settings: HasPools) -> None:
    """Check that no instance runs in a zone that the new settings do not name.

    Nobody would list or end the instance there any more.

    Raises:
        SpecError: one does; the error names the zones and the instances.
        ProviderError: it is not known what runs.
    """
    left: dict[str, list[str]] = {}
    for instance in provider.instances():
        zone = _zone_of(instance)
        if instance.state is not CloudState.TERMINATED and zone and zone not in settings.zones:
            left.setdefault(zone, []).append(instance.id)
    if left:
        words = "; ".join(f"{', '.join(sorted(left[zone]))} in {zone}" for zone in sorted(left))
        raise SpecError(
            f"zones leave the settings while instances run there ({words}): end them first, or "
            "name the zones again in Terraform"
        )


def _zone_of(instance: CloudInstance) -> str:
    """Return the zone in the id of an instance's offer; empty where there is none."""
    parts = instance.offer.split("/")
    return parts[2] if len(parts) == 4 else ""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
