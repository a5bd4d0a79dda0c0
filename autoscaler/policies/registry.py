"""Policies by name: those of this package, and those that others install."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from autoscaler.domain.errors import SpecError
from autoscaler.policies.base import Policy

ENTRY_POINTS = "castor.policies"

_OWN = {
    "allox": "autoscaler.policies.allox:AlloxPolicy",
    "antman": "autoscaler.policies.antman:AntmanPolicy",
    "drf": "autoscaler.policies.drf:DrfPolicy",
    "fifo": "autoscaler.policies.fifo:FifoPolicy",
    "gandiva": "autoscaler.policies.gandiva:GandivaPolicy",
    "gandiva-fair": "autoscaler.policies.gandiva_fair:GandivaFairPolicy",
    "gandiva-fair-by-time": "autoscaler.policies.gandiva_fair:GandivaFairByTimePolicy",
    "gavel": "autoscaler.policies.gavel:GavelPolicy",
    "gavel-cost": "autoscaler.policies.gavel:GavelCostPolicy",
    "gavel-finish-time-fairness": "autoscaler.policies.gavel:GavelFinishTimeFairnessPolicy",
    "gavel-makespan": "autoscaler.policies.gavel:GavelMakespanPolicy",
    "gavel-max-min": "autoscaler.policies.gavel:GavelMaxMinPolicy",
    "hyperdrive": "autoscaler.policies.hyperdrive:HyperdrivePolicy",
    "marginal": "autoscaler.policies.marginal:MarginalPolicy",
    "optimus": "autoscaler.policies.optimus:OptimusPolicy",
    "optimus-oracle": "autoscaler.policies.optimus:OptimusOraclePolicy",
    "pollux": "autoscaler.policies.pollux:PolluxPolicy",
    "pollux-crowded": "autoscaler.policies.pollux_crowded:PolluxCrowdedPolicy",
    "pollux-unaware": "autoscaler.policies.pollux_unaware:PolluxUnawarePolicy",
    "ref": "autoscaler.policies.ref:RefPolicy",
    "shockwave": "autoscaler.policies.shockwave:ShockwavePolicy",
    "sia": "autoscaler.policies.sia:SiaPolicy",
    "slaq": "autoscaler.policies.slaq:SlaqPolicy",
    "static": "autoscaler.policies.static:StaticPolicy",
    "themis": "autoscaler.policies.themis:ThemisPolicy",
    "throughput": "autoscaler.policies.throughput:ThroughputPolicy",
    "tiresias": "autoscaler.policies.tiresias:TiresiasPolicy",
    "tiresias-gittins": "autoscaler.policies.tiresias_gittins:TiresiasGittinsPolicy",
}


@dataclass(frozen=True, slots=True)
class PolicyListing:
    """A policy that could be used; `trouble` tells why it can't."""

    name: str
    place: str
    trouble: str | None = None


def policies() -> tuple[PolicyListing, ...]:
    """All policies, by name; a broken one is listed with its trouble."""
    listings = []
    for name, place in sorted(_places().items()):
        try:
            _load(place)
        except Exception as error:  # another's code may fail in any way when it is imported
            listings.append(PolicyListing(name, place, f"{type(error).__name__}: {error}"))
        else:
            listings.append(PolicyListing(name, place))
    return tuple(listings)


def create_policy(name: str, parameters: object | None = None) -> Policy:
    """The policy of that name, - or _ alike, with its own parameters or its defaults.

    Raises:
        SpecError: there is no such policy, or it can't be imported.
    """
    # To look for what others install takes long, and can't change a policy of this package.
    places = _OWN if name in _OWN else _places()
    if name not in places and name.replace("_", "-") in places:
        name = name.replace("_", "-")
    if name not in places:
        known = ", ".join(sorted(places))
        raise SpecError(f'"{name}" is no policy: there are {known}', "policy")
    try:
        policy = _load(places[name])
    except Exception as error:
        raise SpecError(
            f"{name} can't be used: {type(error).__name__}: {error}", "policy"
        ) from error
    created: Policy = policy() if parameters is None else policy(parameters)
    return created


def require_ground(name: str, policy: Policy, is_pool: bool) -> None:
    """Make sure that a policy can plan for machines that jobs share, or for bought instances.

    Raises:
        SpecError: it is made for the other; the message names the way out.
    """
    ground = getattr(policy, "only_on", None)
    if ground == "pool" and not is_pool:
        raise SpecError(
            f"{name} shares out the machines of a pool: use --cluster of castor simulate", "policy"
        )
    if ground == "cloud" and is_pool:
        raise SpecError(f"{name} buys instances: use --offers", "policy")


def _places() -> Mapping[str, str]:
    """Name -> "module:Class". What others install does not take the place of our own."""
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {**found, **_OWN}


def _load(place: str) -> type:
    module, _, name = place.partition(":")
    found: type = getattr(import_module(module), name)
    return found
