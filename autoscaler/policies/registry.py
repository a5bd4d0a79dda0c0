"""Registry of scheduling policies: those of this package and those of installed plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from autoscaler.domain.errors import SpecError
from autoscaler.policies.base import Policy
from autoscaler.policies.published import PUBLISHED

ENTRY_POINTS = "castor.policies"

_BUILT_IN = {
    "marginal": "autoscaler.policies.marginal.policy:MarginalPolicy",
    "static": "autoscaler.policies.static:StaticPolicy",
    **PUBLISHED,
}


@dataclass(frozen=True, slots=True)
class PolicyListing:
    """Available policy; `trouble` is the error that prevents its use, or None.

    `place` is where the class is: "module:Class".
    """

    name: str
    place: str
    trouble: str | None = None


def policies() -> tuple[PolicyListing, ...]:
    """Return all policies by name; one that fails to import is listed with its error."""
    listings = []
    for name, class_path in sorted(_class_paths().items()):
        try:
            _load(class_path)
        except Exception as error:  # the import of a plug-in may raise anything
            listings.append(PolicyListing(name, class_path, f"{type(error).__name__}: {error}"))
        else:
            listings.append(PolicyListing(name, class_path))
    return tuple(listings)


def create_policy(name: str, parameters: object | None = None) -> Policy:
    """Return the policy of that name, with these parameters or its defaults.

    Underscores count as hyphens.

    Raises:
        SpecError: no policy has the name, or its import fails.
    """
    # The search for plug-ins is slow, and no plug-in replaces a policy of this package.
    class_paths = _BUILT_IN if name in _BUILT_IN else _class_paths()
    if name not in class_paths and name.replace("_", "-") in class_paths:
        name = name.replace("_", "-")
    if name not in class_paths:
        known_names = ", ".join(sorted(class_paths))
        raise SpecError(f'"{name}" is no policy: there are {known_names}', "policy")
    try:
        policy = _load(class_paths[name])
    except Exception as error:
        raise SpecError(
            f"{name} can't be used: {type(error).__name__}: {error}", "policy"
        ) from error
    created: Policy = policy() if parameters is None else policy(parameters)
    return created


def require_ground(name: str, policy: Policy, is_pool: bool) -> None:
    """Check that a policy plans the given kind of supply: a shared pool or bought instances.

    Raises:
        SpecError: the policy plans only the other kind; the message names the option to use.
    """
    ground = getattr(policy, "only_on", None)
    if ground == "pool" and not is_pool:
        raise SpecError(
            f"{name} shares out the machines of a pool: use --cluster of castor simulate", "policy"
        )
    if ground == "cloud" and is_pool:
        raise SpecError(f"{name} buys instances: use --offers", "policy")


def _class_paths() -> Mapping[str, str]:
    """Return "module:Class" by policy name; no plug-in replaces a policy of this package."""
    plug_ins = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {**plug_ins, **_BUILT_IN}


def _load(class_path: str) -> type:
    """Import and return the class at "module:Class"."""
    module, _, name = class_path.partition(":")
    policy_class: type = getattr(import_module(module), name)
    return policy_class
