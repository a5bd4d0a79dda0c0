"""Instant fleets of several overrides, among which EC2 chooses by the capacity of each zone.

Moto lacks this: it launches the first override without regard to capacity. The strategies follow
botocore's documentation of CreateFleet: `prioritized` takes the lowest number first,
`price-capacity-optimized` the zones with most capacity and then the cheapest of them. The refusals
follow reports of EC2's users: `InvalidFleetConfig` for two overrides of one type and zone
(github-aws-runners/terraform-aws-github-runner#5297), and a list of zones with capacity when an
on-demand zone lacks it (openshift/installer#7088).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from tests.fakes.aws.account import Account, Parameters

_OVERRIDES = "LaunchTemplateConfigs.1.Overrides"
Refusal = tuple[str, str]
"""Code and message."""


@dataclass(frozen=True, slots=True)
class Override:
    """Override of a fleet, with the zone of its subnet."""

    number: int
    kind: str
    subnet: str
    zone: str
    purchase: str
    priority: float

    @property
    def place(self) -> tuple[str, str, str]:
        """Key of `Account.capacity`."""
        return self.kind, self.zone, self.purchase


def overrides_of(parameters: Parameters, zone_of: Callable[[str], str]) -> list[Override]:
    """Return the overrides of a request; `zone_of` maps a subnet to its zone."""
    pattern = re.compile(rf"{re.escape(_OVERRIDES)}\.(\d+)\.SubnetId")
    numbers = sorted(int(match[1]) for key in parameters if (match := pattern.fullmatch(key)))
    purchase = parameters.get("TargetCapacitySpecification.DefaultTargetCapacityType", "")
    overrides = []
    for number in numbers:
        prefix = f"{_OVERRIDES}.{number}."
        subnet = parameters[f"{prefix}SubnetId"]
        kind = parameters.get(f"{prefix}InstanceType", "")
        priority = float(parameters.get(f"{prefix}Priority", math.inf))
        overrides.append(Override(number, kind, subnet, zone_of(subnet), purchase, priority))
    return overrides


def invalid_overrides(overrides: Sequence[Override]) -> Refusal | None:
    """Return the refusal of overrides that no fleet may combine; None for valid ones."""
    if len({override.place for override in overrides}) < len(overrides):
        return "InvalidFleetConfig", "The fleet configuration contains duplicate instance pools."
    return None


def refusal_of(account: Account, override: Override) -> Refusal | None:
    """Return the refusal of one override; None if it can be launched."""
    if override.purchase == "spot" and not account.has_spot_role:
        return (
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role "
            "for EC2 Spot Instances.",
        )
    if account.capacity.get(override.place) != 0:
        return None
    if override.purchase == "spot":
        text = "There is no Spot capacity available that matches your request."
        return "InsufficientInstanceCapacity", text
    kind = override.kind
    text = (
        f"We currently do not have sufficient {kind} capacity in the Availability Zone you "
        f"requested ({override.zone}). Our system will be working on provisioning additional "
        "capacity."
    )
    in_stock = [
        zone
        for zone in account.zones
        if account.capacity.get((kind, zone, override.purchase)) != 0
    ]
    if in_stock:
        text += (
            f" You can currently get {kind} capacity by not specifying an Availability Zone in "
            f"your request or choosing {', '.join(in_stock)}."
        )
    return "InsufficientInstanceCapacity", text


def choose_override(
    account: Account, parameters: Parameters, overrides: Sequence[Override]
) -> Override:
    """Return the override that EC2 launches, of those with capacity."""
    strategy = parameters.get("SpotOptions.AllocationStrategy") or parameters.get(
        "OnDemandOptions.AllocationStrategy"
    )

    def rank(override: Override) -> tuple[Any, ...]:
        if strategy == "prioritized":
            return (override.priority, override.number)
        if strategy != "price-capacity-optimized":  # on demand, all zones cost the same
            return (override.number,)
        price = account.spot_prices[override.kind, override.zone]
        return (-account.capacity.get(override.place, math.inf), price, override.number)

    return min(overrides, key=rank)


def with_only_override(parameters: Parameters, override: Override) -> dict[str, str]:
    """Return the request with one override only."""
    kept = f"{_OVERRIDES}.{override.number}."
    return {
        key.replace(kept, f"{_OVERRIDES}.1."): value
        for key, value in parameters.items()
        if key.startswith(kept) or not key.startswith(f"{_OVERRIDES}.")
    }


def fleet_errors(refusals: Sequence[tuple[Override, Refusal]]) -> str:
    """Return the `Errors` of a fleet without instances, one for each override."""
    return "".join(
        f"<item><errorCode>{code}</errorCode><errorMessage>{escape(message)}</errorMessage>"
        f"<lifecycle>{override.purchase}</lifecycle><launchTemplateAndOverrides><overrides>"
        f"<instanceType>{override.kind}</instanceType><subnetId>{override.subnet}</subnetId>"
        "</overrides></launchTemplateAndOverrides></item>"
        for override, (code, message) in refusals
    )
