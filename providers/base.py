"""Contract of every provider of instances.

`tests/conformance/provider.py` holds the contract as tests. The controller can use every provider
that passes them. Every method may block on the network and may be called from any thread. No type
of a cloud's SDK leaves its provider. A refusal by the cloud is raised as one of the
`ProviderError`s of `autoscaler.domain.errors`; its type decides what the controller does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from autoscaler.domain.instance import CloudInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.identity import IdentityVerifier


@dataclass(frozen=True, slots=True)
class Condition:
    """Status of a provider: messages for people, and hints for the planner.

    `left_out` maps an offer's id to the reason why the offer can't be bought. `troubles` lists
    current errors, one line each. `at_risk` holds the ids of instances that the cloud may reclaim
    at an unknown time. `strangers` counts the instances of this deployment by the id of another
    controller that launched them, empty for none. `begins` maps the id of an offer in `left_out`
    that is paid for and in order to the time when it begins, in seconds since the Unix epoch.
    `silent_scopes` maps a region or zone that can't be listed now to the reason: its instances are
    as last seen. `notes` lists what is no error, such as quotas to raise, one line each.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    at_risk: frozenset[str] = frozenset()
    strangers: Mapping[str, int] = field(default_factory=dict)
    begins: Mapping[str, float] = field(default_factory=dict)
    silent_scopes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def silent_troubles(self) -> tuple[str, ...]:
        """Errors for `silent_scopes`."""
        return tuple(
            f"instances of {scope} are as last seen: {reason}"
            for scope, reason in self.silent_scopes.items()
        )

    @property
    def stranger_troubles(self) -> tuple[str, ...]:
        """Errors for `strangers`: a deployment has one controller, so the others were lost."""
        return tuple(
            f"instances of another controller of this deployment, {owner or 'unnamed'}: {count}, "
            f"which count in no limit: end them by hand{_adoption(owner)}"
            for owner, count in sorted(self.strangers.items())
        )


def _adoption(owner: str) -> str:
    """Return the command that adopts a lost controller; empty if its name is no controller's id.

    Instances that an interrupted `castor check --account` left have none.
    """
    with suppress(ValueError):
        return f", or run castor adopt {UUID(owner)}" if owner else ", or run castor adopt ID"
    return ""


@dataclass(frozen=True, slots=True)
class SpotScores:
    """Likelihood that a cloud launches `instances` on spot in one zone now, by zone.

    Scores are from 1 (not likely) to 10 (highly likely), without guarantee. A zone may lack one.
    `caveat` says why the scores may mislead; it is empty if nothing is known to.
    """

    instances: int
    by_zone: Mapping[str, int]
    caveat: str = ""


class Provider(ABC):
    """Source of instances that lists, launches and terminates this deployment's instances."""

    @property
    @abstractmethod
    def identity(self) -> IdentityVerifier | None:
        """Verifier of instances' identity proofs; None where the cloud signs no proofs.

        The object stays the same for the provider's lifetime. The settings that it applies may
        change.
        """

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """Return every offer that can be bought, at current prices. Ids are stable.

        Raises:
            Unavailable: the cloud did not answer; earlier offers may still be valid.
        """

    @abstractmethod
    def limits(self) -> Sequence[Limit]:
        """Return the quotas and capacities that bound this deployment's instances together."""

    @abstractmethod
    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the instance that this token launched before.

        A provider may launch one of `request.alternatives` instead; the instance's `offer` is what
        was launched, here and in lists, also after a restart. A provider whose offers have no
        `order_group` ignores alternatives.

        The instance carries `request.tags` from its creation. The method returns as soon as the
        cloud accepts the request. The state is then usually `PENDING`, or `QUEUED` while the
        request awaits capacity.

        Raises:
            InsufficientCapacity, QuotaExceeded, PermissionDenied: nothing was launched, in any of
                the zones asked.
            NotFound: no such offer exists; nothing was launched.
            Throttled: nothing was launched; the same call may be repeated.
            UnknownRefusal: nothing was launched, for a reason without a rule.
            Unavailable: the outcome is unknown; repeat the same call to learn it.
        """

    @abstractmethod
    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Request the end of instances, including queued ones.

        Instances that have ended already count as done. On return the cloud has accepted the
        requests; `instances()` reports when the instances have ended.

        Raises:
            PermissionDenied, Throttled, Unavailable: some requests may not have been accepted.
        """

    @abstractmethod
    def instances(self) -> Sequence[CloudInstance]:
        """Return every instance that carries this deployment's ownership tag, and no other.

        A queued request is listed as `QUEUED`. It costs nothing until it has a launch time, which
        then stays the same. A request that the cloud abandons ends without a launch time. Ended
        instances stay listed for at least an hour, as `TERMINATED` with `ended_seconds`. If a part
        of the cloud, such as a region, does not answer, its instances are listed as last seen;
        `condition` says so.

        Raises:
            Unavailable: the cloud, or a part of it that has never answered, does not answer. An
                empty list never stands for an unknown one.
        """

    @abstractmethod
    def interruptions(self) -> Sequence[Interruption]:
        """Return reclaim notices of running instances. The same notice may be returned again."""

    def rehearse(self, offer_id: str) -> bool:
        """Ask the cloud whether it would permit a launch of an offer. Nothing is launched.

        Returns:
            False if the cloud can't be asked.

        Raises:
            NotFound: no such offer exists.
            ProviderError: the cloud would refuse the launch, or does not answer.
        """
        return False

    def spot_scores(self, pool: str) -> SpotScores | None:
        """Return how likely all spot instances of a pool can be had; None if the cloud can't tell.

        Raises:
            ProviderError: the cloud refused the call or did not answer.
        """
        return None

    def console(self, instance_id: str) -> str:
        """Return the last console output of an instance; empty if the cloud keeps none.

        Clouds return it with a delay of minutes, and for some time after the end.

        Raises:
            ProviderError: the cloud refused the call or did not answer.
        """
        return ""

    def condition(self) -> Condition:
        """Return the status found by earlier calls. This method makes no call and never fails."""
        return Condition()
