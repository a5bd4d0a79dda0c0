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
    "fifo": "autoscaler.policies.fifo:FifoPolicy",
    "marginal": "autoscaler.policies.marginal:MarginalPolicy",
    "optimus": "autoscaler.policies.optimus:OptimusPolicy",
    "optimus-oracle": "autoscaler.policies.optimus:OptimusOraclePolicy",
    "pollux": "autoscaler.policies.pollux:PolluxPolicy",
    "static": "autoscaler.policies.static:StaticPolicy",
    "tiresias": "autoscaler.policies.tiresias:TiresiasPolicy",
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
    """The policy of that name, with its own parameters or its defaults.

    Raises:
        SpecError: there is no such policy, or it can't be imported.
    """
    places = _places()
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


def _places() -> Mapping[str, str]:
    """Name -> "module:Class". What others install does not take the place of our own."""
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {**found, **_OWN}


def _load(place: str) -> type:
    module, _, name = place.partition(":")
    found: type = getattr(import_module(module), name)
    return found
