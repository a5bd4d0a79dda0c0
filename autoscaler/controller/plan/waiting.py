"""Jobs that hold nothing though no decision says so, each with the reason for its owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.domain.instance import Desired, HeldInstance
from autoscaler.domain.job import JobRecord

_NO_OFFERS = "can't be planned: no provider has reported an offer yet"


class WaitingJobs:
    """Jobs of one tick that are to be planned and hold no instance, or only some that leave.

    A decision to wait has its own reason. Without a plan, and where a decision can't be carried
    out now, the job would otherwise wait without any.
    """

    def __init__(self) -> None:
        self._jobs: frozenset[str] = frozenset()
        self._obstacles: dict[str, str] = {}

    def begin(self, jobs: Iterable[JobRecord], alive: Iterable[HeldInstance]) -> None:
        """Begin a tick with the jobs to plan and the instances of all jobs."""
        holders = {held.job for held in alive if held.desired is Desired.PRESENT}
        self._jobs = frozenset({job.id for job in jobs} - holders)
        self._obstacles = {}

    def hinder(self, job: str, obstacle: str | None) -> None:
        """Record why a job's decision is not carried out now; None: it is."""
        if obstacle is not None and job in self._jobs:
            self._obstacles[job] = obstacle

    def troubles(self, planning_trouble: str | None, has_offers: bool) -> Mapping[str, str]:
        """Return why jobs hold nothing, by job.

        Args:
            planning_trouble: why no plan can be made for any job; None if one can.
            has_offers: whether any provider has reported an offer.
        """
        trouble = planning_trouble if has_offers else _NO_OFFERS
        of_all = {} if trouble is None else dict.fromkeys(self._jobs, trouble)
        return of_all | self._obstacles
