"""The contract of every provider of instances.

`tests/conformance/provider.py` holds the contract as tests; a provider that passes them can be
put under the controller. Every method may block on the network and may be called from any
thread. No type of a cloud's SDK leaves its provider; what the cloud refuses is raised as one of
the `ProviderError`s of `autoscaler.domain.errors`, whose type decides what the controller does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.domain.instance import CloudInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.identity import IdentityVerifier


@dataclass(frozen=True, slots=True)
class Condition:
    """How a provider does, beside what its calls answer. All of it is for people, or a hint.

    `left_out` says why offers can't be bought, by offer; `troubles` what does not work, a line
    each; `at_risk` are instances that the cloud would rather have back, though it does not say
    when.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    at_risk: frozenset[str] = frozenset()


class Provider(ABC):
    """Sells instances, tells which of them this deployment owns, and takes them back."""

    @property
    @abstractmethod
    def identity(self) -> IdentityVerifier | None:
        """What checks the proof that an instance joins with; None where the cloud signs none.

        The same for as long as this provider is: what it goes by may change.
        """

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """All that can be bought here, at the prices of now. Ids are stable.

        Raises:
            Unavailable: the cloud did not answer; what was offered before may still be.
        """

    @abstractmethod
    def limits(self) -> Sequence[Limit]:
        """Quotas and capacity that bound all instances of this deployment together."""

    @abstractmethod
    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one that this token launched before.

        The instance is tagged with `request.tags` from its first moment. It is returned as soon
        as the cloud has accepted it, usually `PENDING`, or `QUEUED` where it waits for capacity.

        Raises:
            InsufficientCapacity, QuotaExceeded, PermissionDenied: nothing was launched.
            NotFound: there is no such offer; nothing was launched.
            Throttled: nothing was launched; the same call may be made again.
            UnknownRefusal: nothing was launched, for a reason without a rule.
            Unavailable: it is not known whether something was launched; the same call must be
                made again to find out.
        """

    @abstractmethod
    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Begin to end these instances, or take them out of the queue that they wait in.

        Those that are gone already count as done. Returning means that the cloud was told, not
        that they have ended: `instances()` says so.

        Raises:
            PermissionDenied, Throttled, Unavailable: some may not have been told.
        """

    @abstractmethod
    def instances(self) -> Sequence[CloudInstance]:
        """Every instance that carries this deployment's ownership tag, and no other.

        What waits in a queue is among them, `QUEUED`, and costs nothing until it has a time of
        launch, which it keeps. An order that the cloud gives up ends without one.
        Ended ones stay in the list, as `TERMINATED` with `ended_seconds`, for at least an hour.
        Those of a part of the cloud that does not answer, such as a region, are as they were last
        seen, and `condition` says so.

        Raises:
            Unavailable: not known, of all of it or of a part that has not answered yet. Never an
                empty list in place of 'not known'.
        """

    @abstractmethod
    def interruptions(self) -> Sequence[Interruption]:
        """Notices of reclaim for instances that still run. The same notice may come again."""

    def condition(self) -> Condition:
        """How it does, as found out by the calls so far; it calls nobody, and never fails."""
        return Condition()
