"""Lists of instances: of all zones in one call or, if that fails, of each zone.

Google's client can't request partial lists, so one silent zone may fail the list of all zones.
Each zone is then listed alone.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from autoscaler.domain.errors import ProviderError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG
from providers.cloud.asking import map_concurrently
from providers.cloud.replies import readable
from providers.cloud.tags import DEPLOYMENT_TAG
from providers.gcp.calls import ProjectCalls
from providers.gcp.replies import DescribedInstance, label_key, told_instance
from providers.gcp.settings import GcpSettings, region_of

_log = logging.getLogger(__name__)

_HARMLESS_WARNINGS: Final = frozenset({"", "NO_RESULTS_ON_PAGE"})

Answer = list[DescribedInstance] | ProviderError


class InstanceLists:
    """Lists of the instances of `controller`, found by the label of the deployment.

    `strangers` counts the instances of the deployment that have another controller, by its label.
    Only a lost state leaves any, since a deployment has one controller.
    """

    def __init__(self, settings: GcpSettings, controller: str, calls: ProjectCalls) -> None:
        self._regions = frozenset(settings.regions)
        self._own_zones = {zone for region in settings.regions.values() for zone in region.zones}
        self._controller = controller
        self._calls = calls
        self._filter = f'labels.{label_key(DEPLOYMENT_TAG)} = "{settings.deployment}"'
        self.strangers: Counter[str] = Counter()
        self._owners: list[str] = []  # of the strangers in the list that is being made

    def answers(self, known: Collection[str]) -> dict[str, Answer]:
        """Return each zone's instances or the error of its list.

        The zones are those of the settings and the `known` zones.

        Raises:
            ProviderError: the call is refused.
        """
        zones = sorted(self._own_zones | set(known))
        answers = self._listed(zones)
        self.strangers = Counter(self._owners)
        return answers

    def _listed(self, zones: Sequence[str]) -> dict[str, Answer]:
        self._owners = []
        try:
            return self._list_all(zones)
        except Unavailable as error:
            _log.info("each zone is listed alone: %s", error)
        self._owners = []
        return dict(zip(zones, map_concurrently(self._list_zone, zones), strict=True))

    def _list_all(self, zones: Iterable[str]) -> dict[str, Answer]:
        by_zone: defaultdict[str, list[DescribedInstance]] = defaultdict(
            list, {zone: [] for zone in zones}
        )
        errors: dict[str, Answer] = {}
        for zone, scope_list in self._scopes():
            is_ours = zone in by_zone or region_of(zone) in self._regions
            if scope_list.warning.code in _HARMLESS_WARNINGS:
                instances = self._own_instances(scope_list.instances, zone)
                if is_ours or instances:
                    by_zone[zone] += instances
            elif is_ours:
                reason = f"{scope_list.warning.code}: {scope_list.warning.message}"
                errors[zone] = Unavailable(f"{zone}: instances.aggregatedList: {reason}")
        return {**by_zone, **errors}

    def _scopes(self) -> Iterator[tuple[str, Any]]:
        """Yield each zone and its part of the list, page by page."""
        for page in self._calls.instances(self._filter):
            for scope, scope_list in page.items.items():
                yield scope.removeprefix("zones/"), scope_list

    def _list_zone(self, zone: str) -> Answer:
        instances: list[DescribedInstance] = []
        try:
            for page in self._calls.instances_in(zone, self._filter):
                instances += self._own_instances(page.items, zone)
        except ProviderError as error:
            return error
        return instances

    def _own_instances(self, descriptions: Iterable[Any], zone: str) -> list[DescribedInstance]:
        with readable(f"{zone}: a list of instances"):
            described = [told_instance(description, zone) for description in descriptions]
        owned = []
        for seen in described:
            owner = seen.instance.tags.get(CONTROLLER_TAG, "")
            if owner == self._controller:
                owned.append(seen)
            else:
                self._owners.append(owner)
        return owned
