"""Lists: of all zones at once, and where that fails of each by itself.

Google's client can't ask for partial lists, so that a zone that does not answer may fail the list
of all. Then the others are asked alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from autoscaler.domain.errors import ProviderError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG
from providers.cloud.asking import asked_at_once
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.replies import CONTROLLER_LABEL, Seen, label_value, told_instance
from providers.gcp.settings import GcpSettings, region_of

_log = logging.getLogger(__name__)

_NOTHING_LISTED: Final = frozenset({"", "NO_RESULTS_ON_PAGE"})

Answer = list[Seen] | ProviderError


class Listing:
    """Looks for the instances of `controller`, in the only way: among those with its label."""

    def __init__(self, settings: GcpSettings, controller: str, calls: ProjectCalls) -> None:
        self._regions = frozenset(settings.regions)
        self._own_zones = {zone for region in settings.regions.values() for zone in region.zones}
        self._controller = controller
        self._calls = calls
        self._wanted = f'labels.{CONTROLLER_LABEL} = "{label_value(controller)}"'

    def answers(self, known: Collection[str]) -> dict[str, Answer]:
        """What each zone of ours lists, or why it does not; of the `known` zones in any case.

        Raises:
            ProviderError: it can't be asked.
        """
        zones = sorted(self._own_zones | set(known))
        try:
            return self._of_all(zones)
        except Unavailable as error:
            _log.info("each zone is asked by itself: %s", error)
        return dict(zip(zones, asked_at_once(self._of_one, zones), strict=True))

    def _of_all(self, zones: Iterable[str]) -> dict[str, Answer]:
        found: defaultdict[str, list[Seen]] = defaultdict(list, {zone: [] for zone in zones})
        silent: dict[str, Answer] = {}
        for zone, held in self._scopes():
            is_ours = zone in found or region_of(zone) in self._regions
            if held.warning.code in _NOTHING_LISTED:
                if is_ours or held.instances:
                    found[zone] += self._own(held.instances, zone)
            elif is_ours:
                words = f"{held.warning.code}: {held.warning.message}"
                silent[zone] = Unavailable(f"{zone}: instances.aggregatedList: {words}")
        return {**found, **silent}

    def _scopes(self) -> Iterator[tuple[str, Any]]:
        """What each page has of each zone."""
        for page in self._calls.instances(self._wanted):
            for scope, held in page.items.items():
                yield scope.removeprefix("zones/"), held

    def _of_one(self, zone: str) -> Answer:
        found: list[Seen] = []
        try:
            for page in self._calls.instances_in(zone, self._wanted):
                found += self._own(page.items, zone)
        except ProviderError as error:
            return error
        return found

    def _own(self, told: Iterable[Any], zone: str) -> list[Seen]:
        with readable(f"{zone}: a list of instances"):
            seen = [told_instance(one, zone) for one in told]
        return [one for one in seen if one.instance.tags.get(CONTROLLER_TAG) == self._controller]
