"""Registry of scheduling policies: those of this package and those of installed plug-ins."""

from __future__ import annotations

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import did_you_mean, quoted
from autoscaler.plug_ins import PlugInListing, PlugIns
from autoscaler.policies.base import Policy
from autoscaler.policies.published import PUBLISHED

ENTRY_POINTS = "castor.policies"

_POLICIES = PlugIns(
    ENTRY_POINTS,
    {
        "marginal": "autoscaler.policies.marginal.policy:MarginalPolicy",
        "static": "autoscaler.policies.static:StaticPolicy",
        **PUBLISHED,
    },
)


def policies() -> tuple[PlugInListing, ...]:
    """Return all policies by name; one that fails to import is listed with its error."""
    return _POLICIES.listings()


def create_policy(name: str, parameters: object | None = None) -> Policy:
    """Return the policy of that name, with these parameters or its defaults.

    Underscores count as hyphens.

    Raises:
        SpecError: no policy has the name, or its import fails.
    """
    if name not in _POLICIES and name.replace("_", "-") in _POLICIES:
        name = name.replace("_", "-")
    if name not in _POLICIES:
        known = _POLICIES.names()
        hint = did_you_mean(name, known, f"there are {', '.join(known)}")
        raise SpecError(f"{quoted(name)} is no policy: {hint}", "policy")
    policy = _POLICIES.load(name, "policy")
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
