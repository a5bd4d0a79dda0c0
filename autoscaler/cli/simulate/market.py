"""Market of a simulation: the offers of an elastic cloud, or the machines of a fixed pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.spec.cluster_file import (
    ClusterSpec,
    MixedCluster,
    NodeGroup,
    load_cluster,
    parse_cluster,
)
from autoscaler.spec.offers_file import OffersFile, load_offers

_POOL_BYTES_PER_SECOND = 6.25e9
# Kind of device of profiles whose files name no kind.
_DEFAULT_KIND = "default"


@dataclass(frozen=True, slots=True)
class SimulatedMarket:
    """Offers and limits of a simulation.

    Attributes:
        equipment: each offer with the kind of device of its profile, by offer id.
        limits: limits on what can be held together.
        is_pool: whether this is a fixed pool of machines, already paid for.
        restart_seconds: seconds without training after a resize, by application.
        slowdown: factor on step times, by application.
        is_profiled: whether each application was profiled on one device of each kind.
        traces: files of changing capacity, by offer id.
        shape: machines and devices of a pool without a named kind of device; otherwise None.
        source: prefix of error messages that names the file of offers or machines.
    """

    equipment: Mapping[str, Equipment]
    limits: tuple[Limit, ...] = ()
    is_pool: bool = False
    restart_seconds: Mapping[str, float] = field(default_factory=dict)
    slowdown: Mapping[str, float] = field(default_factory=dict)
    is_profiled: bool = False
    traces: Mapping[str, Path] = field(default_factory=dict)
    shape: ClusterSpec | None = None
    source: str = ""

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All offers of the market."""
        return tuple(item.offer for item in self.equipment.values())

    def settings_of_applications(self, common: TrainingSettings) -> dict[str, TrainingSettings]:
        """Return training settings by application, for applications that the pool's file names.

        Settings that the file does not name are those of `common`.
        """
        return {
            application: replace(
                common,
                pause_seconds=self.restart_seconds.get(application, common.pause_seconds),
                slowdown=self.slowdown.get(application, common.slowdown),
            )
            for application in {*self.restart_seconds, *self.slowdown}
        }

    def as_profiled(self, profiles: Mapping[str, Profile]) -> SimulatedMarket:
        """Return the market with kinds of device that all applications were profiled on.

        A pool without a named kind gets the only kind that all profiles share.

        Raises:
            SpecError: an application was not profiled on an offer's kind of device.
        """
        if self.shape is not None and any(
            _DEFAULT_KIND not in profile.kinds for profile in profiles.values()
        ):
            return self._of_common_kind(self.shape, profiles)
        for application, profile in sorted(profiles.items()):
            for item in self.equipment.values():
                if item.profile_kind not in profile.kinds:
                    raise SpecError(
                        f"{application} was not profiled on {item.profile_kind}, but on "
                        f"{', '.join(sorted(profile.kinds))}: {self._kind_hint}",
                        f"{self.source}{item.offer.id}",
                    )
        return self

    def _of_common_kind(
        self, shape: ClusterSpec, profiles: Mapping[str, Profile]
    ) -> SimulatedMarket:
        common = sorted(frozenset.intersection(*(profile.kinds for profile in profiles.values())))
        if len(common) != 1:
            words = ", ".join(
                sorted({kind for profile in profiles.values() for kind in profile.kinds})
            )
            kind = common[0] if common else "KIND"
            raise SpecError(
                f"applications were profiled on {words}: name the kind of the machines in a "
                f"file, --cluster FILE.yaml with nodes: [{{kind: {kind}, "
                f"count: {shape.nodes}, devices: {shape.devices_per_node}}}]",
                "--cluster",
            )
        equipment = {
            name: Equipment(item.offer, common[0]) for name, item in self.equipment.items()
        }
        return replace(self, equipment=equipment)

    @property
    def _kind_hint(self) -> str:
        if self.is_pool:
            return "name one of these as the kind of its machines"
        return "name one of these as the kind of its devices (profile: KIND), or leave it out"


def read_market(options: SimulateOptions) -> SimulatedMarket:
    """Return the market that the options name.

    Raises:
        SpecError: the options name no market or two, or the file can't be used.
    """
    if options.offers is not None and options.cluster is None:
        return _elastic_market(options.offers)
    if options.cluster is not None and options.offers is None:
        return _pool_market(options.cluster)
    raise SpecError("name one market to train on: --offers FILE, or --cluster 16x4")


def equipment_of(file: OffersFile) -> dict[str, Equipment]:
    """Return each offer of a file with the kind of device of its profile, by offer id."""
    return {
        offer.id: Equipment(offer, file.profile_kinds.get(offer.id, offer.device_kind))
        for offer in file.offers
    }


def _elastic_market(path: Path) -> SimulatedMarket:
    file = load_offers(path, 0.0)
    source = f"{path}: offers: "
    return SimulatedMarket(equipment_of(file), file.limits, traces=file.traces, source=source)


def _pool_market(text: str) -> SimulatedMarket:
    """Return the pool of a file, or of a shape such as ``16x4``."""
    if text.endswith((".yaml", ".yml")):
        return _market_of_machines(load_cluster(Path(text)), f"{text}: nodes: ")
    shape = parse_cluster(text)
    nodes = (NodeGroup(_DEFAULT_KIND, shape.nodes, shape.devices_per_node),)
    return replace(_market_of_machines(MixedCluster(nodes, {}, {}), ""), shape=shape)


def _market_of_machines(cluster: MixedCluster, source: str) -> SimulatedMarket:
    nodes = [group for group in cluster.nodes for _ in range(group.count)]
    machines = [_machine(number, node) for number, node in enumerate(nodes)]
    return SimulatedMarket(
        equipment={machine.id: Equipment(machine, machine.device_kind) for machine in machines},
        is_pool=True,
        restart_seconds=cluster.restart_seconds,
        slowdown=cluster.slowdown,
        is_profiled=cluster.profiled,
        source=source,
    )


def _machine(number: int, node: NodeGroup) -> Offer:
    """Return the offer of a machine of a pool that is already paid for."""
    return Offer(
        id=f"node-{number:03}",
        provider="pool",
        instance_type="node",
        zone="pool",
        purchase=Purchase.RESERVED,
        devices=node.devices,
        device_kind=node.kind,
        usd_per_hour=Decimal(0),
        boot_seconds=0.0,
        network_bytes_per_second=_POOL_BYTES_PER_SECOND,
        shared=True,
    )
