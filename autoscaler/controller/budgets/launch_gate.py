"""Final check of a launch at the moment of its call: freezes and budgets."""

from __future__ import annotations

from autoscaler.controller.budgets.guard import Budgets
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import HeldInstance, by_job
from autoscaler.store.store import Store


class LaunchGate:
    """Final check of ordered launches. Thread-safe.

    An order may wait long for its call, in a queue of workers or for a throttled cloud.
    `Instances.begin_launch` checks whether the instance is still wanted and its job still takes
    instances, in the transaction that marks the launch as sent.
    """

    def __init__(self, store: Store, settings: ControllerSettings, budgets: Budgets) -> None:
        self._store = store
        self._settings = settings
        self._budgets = budgets

    def obstacle(self, held: HeldInstance, now_seconds: float) -> str | None:
        """Return why the instance must not be launched now; None if it may be.

        Budgets count the instance as if it were running, so that no launch is made only to be
        ended by the guard of its budget.
        """
        hands_off_reason = hands_off(self._settings, self._store)
        if hands_off_reason is not None:
            return hands_off_reason
        job = self._store.jobs.get(held.job)
        job_instances = self._store.instances.of_job(job.id)
        if self._budgets.of_job(job, job_instances).is_used_up(now_seconds):
            return f"the budget of job {job.id} is used up"
        if job.spec.study is not None and self._is_study_used_up(job.spec.study, now_seconds):
            return f"the budget of study {job.spec.study} is used up"
        if self._settings.fleet_usd is not None:
            jobs, instances = self._store.jobs.alive(), self._store.instances.alive()
            if self._budgets.of_fleet(jobs, instances).is_used_up(now_seconds):
                return "the fleet budget is used up"
        return None

    def _is_study_used_up(self, study: str, now_seconds: float) -> bool:
        """Return whether a study's budget is used up; True also if its records can't be read."""
        jobs, held = self._store.jobs.alive(), by_job(self._store.instances.alive())
        try:
            return self._budgets.of_study(study, jobs, held).is_used_up(now_seconds)
        except CastorError:  # the control loop reports the error as the study's
            return True
