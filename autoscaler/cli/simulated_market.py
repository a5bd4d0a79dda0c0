"""What a simulation trains on: the offers of an elastic cloud, or the machines of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from autoscaler.cli.simulate_options import SimulateOptions
from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.training import TrainingSettings
from autoscaler.spec.cluster_file import (
    ClusterSpec,
    MixedCluster,
    NodeGroup,
    load_cluster,
    parse_cluster,
)
from autoscaler.spec.offers_file import OffersFile, load_offers

_POOL_BYTES_PER_SECOND = 6.25e9
# Profiles whose files name no kind of device are of this one.
_ONLY_KIND = "default"


@dataclass(frozen=True, slots=True)
class SimulatedMarket:
    """What there is to train on.

    `equipment` (offer id -> equipment) says as which kind of device each offer was profiled.
    `restart_seconds` and `slowdown` are by application, as the file of a pool has them, and so
    is whether each was profiled on one device of each kind. `traces` (offer id -> file) are of
    offers of which there are not always as many. `shape` is that of a pool whose kind
    of device nobody named; `source` is where offers stand, for messages.
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
        """All offers."""
        return tuple(each.offer for each in self.equipment.values())

    def settings_of_applications(self, common: TrainingSettings) -> dict[str, TrainingSettings]:
        """How applications train that the pool's file says something of."""
        return {
            application: replace(
                common,
                pause_seconds=self.restart_seconds.get(application, common.pause_seconds),
                slowdown=self.slowdown.get(application, common.slowdown),
            )
            for application in {*self.restart_seconds, *self.slowdown}
        }

    def as_profiled(self, profiles: Mapping[str, Profile]) -> SimulatedMarket:
        """The market with every offer of a kind that each of these applications was profiled on.

        A pool whose kind nobody named is of the one that all were profiled on, if it is one.

        Raises:
            SpecError: some application was not profiled on an offer's kind of device.
        """
        if self.shape is not None and any(
            _ONLY_KIND not in each.kinds for each in profiles.values()
        ):
            return self._of_common_kind(self.shape, profiles)
        for application, profile in sorted(profiles.items()):
            for each in self.equipment.values():
                if each.profile_kind not in profile.kinds:
                    raise SpecError(
                        f"{application} was not profiled on {each.profile_kind}, but on "
                        f"{', '.join(sorted(profile.kinds))}: {self._way_out}",
                        f"{self.source}{each.offer.id}",
                    )
        return self

    def _of_common_kind(
        self, shape: ClusterSpec, profiles: Mapping[str, Profile]
    ) -> SimulatedMarket:
        known = sorted(frozenset.intersection(*(each.kinds for each in profiles.values())))
        if len(known) != 1:
            words = ", ".join(sorted({kind for each in profiles.values() for kind in each.kinds}))
            kind = known[0] if known else "KIND"
            raise SpecError(
                f"applications were profiled on {words}: say in a file which of these the "
                f"machines have, --cluster FILE.yaml with nodes: [{{kind: {kind}, "
                f"count: {shape.nodes}, devices: {shape.devices_per_node}}}]",
                "--cluster",
            )
        equipment = {
            name: Equipment(each.offer, known[0]) for name, each in self.equipment.items()
        }
        return replace(self, equipment=equipment)

    @property
    def _way_out(self) -> str:
        if self.is_pool:
            return "name one of these as the kind of its machines"
        return "say which of these its devices are (profile: KIND), or leave it out"


def read_market(options: SimulateOptions) -> SimulatedMarket:
    """The market that the options name.

    Raises:
        SpecError: they name none or both, or the file can't be used.
    """
    if options.offers is not None and options.cluster is None:
        return _elastic(options.offers)
    if options.cluster is not None and options.offers is None:
        return _pool(options.cluster)
    raise SpecError("say what there is to train on: --offers FILE, or --cluster 16x4")


def equipment_of(file: OffersFile) -> dict[str, Equipment]:
    """As which kind of device each offer of a file was profiled."""
    return {
        offer.id: Equipment(offer, file.profile_kinds.get(offer.id, offer.device_kind))
        for offer in file.offers
    }


def _elastic(path: Path) -> SimulatedMarket:
    file = load_offers(path, 0.0)
    source = f"{path}: offers: "
    return SimulatedMarket(equipment_of(file), file.limits, traces=file.traces, source=source)


def _pool(text: str) -> SimulatedMarket:
    """The pool, of one kind of machine or as a file has it."""
    if text.endswith((".yaml", ".yml")):
        return _machines(load_cluster(Path(text)), f"{text}: nodes: ")
    shape = parse_cluster(text)
    nodes = (NodeGroup(_ONLY_KIND, shape.nodes, shape.devices_per_node),)
    return replace(_machines(MixedCluster(nodes, {}, {}), ""), shape=shape)


def _machines(cluster: MixedCluster, source: str) -> SimulatedMarket:
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
    """One machine of a pool that is paid for already."""
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
