"""Jobs of a study's trials."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import optuna

from autoscaler.domain.errors import CastorError, Conflict, UnknownJob
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView
from hpo.driver.lease import DriverLease
from hpo.driver.trial_server import TrialServer, find_ended_trial, running_trials

_log = logging.getLogger(__name__)


class TrialJobs:
    """Trials of one driver, by job.

    Attributes:
        held: the trial that each job runs.
        left: the previous trial of each job; requests of its worker are still answered.
        stopping: jobs that an earlier driver stopped, and whose trials begin again after the jobs
            end.
    """

    def __init__(
        self, study: optuna.Study, template: JobSpec, client: Client, lease: DriverLease
    ) -> None:
        """Set up without trials; `template` is the job of each trial except for its name.

        Jobs are submitted and stopped with the driver's `lease`.
        """
        self._study = study
        self._template = template
        self._client = client
        self._lease = lease
        self.held: dict[str, TrialServer] = {}
        self.left: dict[str, TrialServer] = {}
        self.stopping: set[str] = set()

    def resume_running_trials(self) -> None:
        """Take over the running trials of an earlier driver.

        Submit a new job where it has ended.

        A trial whose job is being stopped gets its new job after the old one has ended. The
        storage may have the name of a job in place of its id, if the driver died as it submitted
        the job.
        """
        for name, server in running_trials(self._study).items():
            if name not in self.held:
                view = self.view(name)
                job = name if view is None else view.id
                if view is None or view.phase.is_final:
                    self.left[job] = server
                    self.submit_trial(server)
                    continue
                if job == name:
                    self.held[job] = server
                else:
                    self.assign_trial(job, server)
                if view.phase is JobPhase.STOPPING:
                    self.stopping.add(job)

    def view(self, job: str) -> JobView | None:
        """Return the job of a trial of this study; None if there is no such job."""
        try:
            view = self._client.job(job)
        except UnknownJob:
            return None
        return view if view.study == self._template.study else None

    def submit_trial(self, server: TrialServer) -> None:
        """Submit the job of a trial.

        Store the job's name first, so that the next driver finds it.

        Raises:
            Conflict: another driver has taken the study's lease.
        """
        name = f"{self._template.name}-{server.number}"
        server.bind(name)
        try:
            spec = replace(self._template, name=name)
            view: JobView | None = self._lease.call_with_lease(
                lambda: self._client.submit(spec, driver=self._lease.holder)
            )
        except Conflict:
            if self._lease.is_lost:
                raise
            view = self.view(name)
            if view is None:  # else an earlier driver submitted it, and died before it stored that
                raise
        assert view is not None
        self.assign_trial(view.id, server)

    def assign_trial(self, job: str, server: TrialServer) -> None:
        """Record that a job runs this trial from now on."""
        server.bind(job)
        self.held[job] = server

    def trial(self, job: str, number: int | None) -> TrialServer:
        """Return a trial that a job runs or has run; `number` None for the last one.

        Raises:
            RuntimeError: the job has run no such trial.
        """
        for server in (self.held.get(job), self.left.get(job)):
            if server is not None and number in (None, server.number):
                return server
        ended = find_ended_trial(self._study, job, number)
        if ended is None:
            raise RuntimeError(f"job {job} is no trial that is under way")
        return ended

    def release_trial(self, job: str) -> TrialServer:
        """Record that a job no longer runs its trial; return the trial."""
        self.left[job] = self.held.pop(job)
        return self.left[job]

    def stop(self, others: Iterable[str] = ()) -> None:
        """Stop the running jobs; their trials stay open for the next driver.

        `others` are jobs that run no trial at the moment.
        """
        for job in (*self.held, *others):
            try:
                self._client.stop(job, driver=self._lease.holder)
            except Conflict:  # the job has ended, or another driver has the study
                continue
            except CastorError as error:
                _log.error("job %s may still run: %s", job, error)
