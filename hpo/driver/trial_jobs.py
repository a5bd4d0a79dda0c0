"""The jobs that run the trials of a study, and which trial each of them runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import optuna

from autoscaler.domain.errors import CastorError, Conflict, UnknownJob
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView
from hpo.driver.trial_server import Attachment, ended_one, running_attachments

_log = logging.getLogger(__name__)


class TrialJobs:
    """The trials of one driver, by their jobs.

    Attributes:
        held: the trial that each job runs now.
        left: the trial that each job ran before: what its worker has said still counts, and a
            worker that is started again hears that its trial is over.
        stopping: jobs that an earlier driver stopped, and whose trials begin again afterwards.
    """

    def __init__(self, study: optuna.Study, template: JobSpec, client: Client) -> None:
        """`template` is the job of every trial but for its name, which is the study's there."""
        self._study = study
        self._template = template
        self._client = client
        self.held: dict[str, Attachment] = {}
        self.left: dict[str, Attachment] = {}
        self.stopping: set[str] = set()

    def take_up(self) -> None:
        """Hold the trials that an earlier driver left: their jobs run on, or are begun again.

        One that is being stopped, as by that driver's end, is begun again when it has ended.
        """
        for job, attachment in running_attachments(self._study).items():
            if job not in self.held:
                view = self.view(job)
                if view is None or view.phase.is_final:
                    self.left[job] = attachment
                    self.hand_in(attachment)
                    continue
                self.held[job] = attachment
                if view.phase is JobPhase.STOPPING:
                    self.stopping.add(job)

    def view(self, job: str) -> JobView | None:
        """Return the job of a trial of this study; None if there is none of that id."""
        try:
            view = self._client.job(job)
        except UnknownJob:
            return None
        return view if view.study == self._template.study else None

    def hand_in(self, attachment: Attachment) -> None:
        """Submit the job of a trial. Its name is noted first, so that it is found again."""
        name = f"{self._template.name}-{attachment.number}"
        attachment.bind(name)
        try:
            view: JobView | None = self._client.submit(replace(self._template, name=name))
        except Conflict:  # it was submitted, and whoever did so died before it was written down
            view = self.view(name)
            if view is None:
                raise
        assert view is not None
        self.hold(view.id, attachment)

    def hold(self, job: str, attachment: Attachment) -> None:
        """Note that a job runs this trial from now on."""
        attachment.bind(job)
        self.held[job] = attachment

    def trial(self, job: str, number: int | None) -> Attachment:
        """Return the trial of that number, None: whichever, that a job runs or has run.

        Raises:
            RuntimeError: the job has run no such trial.
        """
        for known in (self.held.get(job), self.left.get(job)):
            if known is not None and number in (None, known.number):
                return known
        ended = ended_one(self._study, job, number)
        if ended is None:
            raise RuntimeError(f"job {job} is no trial that is under way")
        return ended

    def let_go(self, job: str) -> Attachment:
        """Note that a job has left its trial; return that."""
        self.left[job] = self.held.pop(job)
        return self.left[job]

    def stop(self, others: Iterable[str] = ()) -> None:
        """End what still runs; its trials stay as they are, and the next driver takes them up.

        `others` are jobs that run no trial at the moment.
        """
        for job in (*self.held, *others):
            try:
                self._client.stop(job)
            except Conflict:
                continue
            except CastorError as error:
                _log.error("job %s may still run: %s", job, error)
