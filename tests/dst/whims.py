"""Policy that changes its mind at random, within each job's bounds."""

from __future__ import annotations

from random import Random

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot

_CHANGES = 0.12
_LEAVES = 0.15


class Whims:
    """Random targets; after `settle` each job gets one instance of any offer and keeps it."""

    weighs_boots = True

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._targets: dict[str, Allocation | None] = {}
        self.is_settled = False

    def settle(self) -> None:
        """Change targets only where an offer can't be bought any more."""
        self.is_settled = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the present targets as a plan."""
        return Plan(tuple(self._decision(job, snapshot) for job in snapshot.jobs))

    def _decision(self, job: JobSnapshot, snapshot: Snapshot) -> Decision:
        offers = {offer.id: offer for offer in snapshot.offers if job.instances.permits(offer)}
        buyable = sorted(offers.keys() - snapshot.unavailable)
        target = self._targets.get(job.id)
        is_stale = target is None or (target != job.held and target.offer not in buyable)
        if buyable and (self._is_whim(job) or (self.is_settled and is_stale)):
            gang = job.parallelism.gang_of(1) or 1
            most = gang if self.is_settled else job.instances.maximum
            count = self._chance.randint(min(job.instances.minimum, most), most) // gang * gang
            if self.is_settled or self._chance.random() > _LEAVES:
                offer = self._chance.choice(buyable)
                most = job.instances.most_of(offers[offer]) // gang * gang
                target = Allocation(offer, min(count, most), 1)
            else:
                target = None
            self._targets[job.id] = target
        action = Action.HOLD if target == job.held else Action.GROW
        release_first = self._chance.random() < 0.2
        return Decision(
            job.id, action, job.held, target, f"a whim: {target}", release_first=release_first
        )

    def _is_whim(self, job: JobSnapshot) -> bool:
        is_new = job.id not in self._targets
        return is_new or (not self.is_settled and self._chance.random() < _CHANGES)
