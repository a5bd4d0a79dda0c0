"""Runs of a job that go on from the checkpoint of an earlier one, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import PurePosixPath

from autoscaler.controller.act.job_end import has_ended_early
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.service.files.stored import has_saved
from autoscaler.wire.messages import Resumption


def require_ended(job: JobRecord, every: Sequence[HeldInstance]) -> None:
    """Check that a job can be resumed as far as its phase goes.

    `every` are all instances that it ever had.

    Raises:
        Conflict: it has not ended, or its training is complete, or a study drives it.
    """
    if job.spec.study is not None:
        raise Conflict(
            f"{job.id} is a trial of the study {job.spec.study}: start the study again, which "
            "resumes its trials"
        )
    if not job.phase.is_final:
        raise Conflict(f"job {job.id} is {job.phase}: only one that has ended can be resumed")
    if job.phase is JobPhase.FINISHED and not has_ended_early(every):
        raise Conflict(
            f"the training of {job.id} is complete: there is nothing to go on with; submit it "
            "again to train anew"
        )
    instances_left = sum(held.phase is not InstancePhase.ENDED for held in every)
    if instances_left:
        raise Conflict(
            f"{job.id} still gives {instances_left} of its instances back: resume it in a moment"
        )


def resumed_spec(job: JobRecord, resumption: Resumption, spent_usd: Decimal) -> JobSpec:
    """Return what the next run of a job is submitted with.

    It has what is left of the budget after `spent_usd`, unless the change brings an objective.
    What devices were found to take at once holds for it, if it runs the same script.

    Raises:
        SpecError: nothing of the budget is left, or the resumption's spec is of another job.
    """
    spec = resumption.spec or job.spec
    _require_same_job(spec, job)
    objective = resumption.objective or _with_rest_of_budget(job.id, spec.objective, spent_usd)
    return replace(
        spec,
        batch=job.known_batch if _runs_same_script(spec, job.spec) else spec.batch,
        objective=objective,
        instances=resumption.instances or spec.instances,
        priority=resumption.priority or spec.priority,
        resumes=job.files_of,
    )


def _runs_same_script(spec: JobSpec, earlier: JobSpec) -> bool:
    """Whether a device takes as many examples at once as in an earlier run, as far as is known."""

    def script_of(own: JobSpec) -> tuple[object, ...]:
        """Return all that can change what an example takes of a device's memory."""
        batch = replace(own.batch, kind_maxima=())
        files = own.bundle, own.image, own.setup, own.data
        return (own.command, dict(own.environment), *files, batch)

    return script_of(spec) == script_of(earlier)


def _require_same_job(spec: JobSpec, job: JobRecord) -> None:
    """Check that a spec is one of a job's next run: its name and its checkpoints are the same.

    Raises:
        SpecError: it is not.
    """
    directory, earlier = spec.checkpoint.directory, job.spec.checkpoint.directory
    if spec.name != job.spec.name:
        raise SpecError(
            f"{spec.name} is not {job.spec.name}, the name of {job.id}, which is resumed: a run "
            "keeps the name",
            "name",
        )
    if spec.study is not None:
        raise SpecError(f"{job.id} is no trial of a study: leave it out", "study")
    if directory != earlier:
        raise SpecError(
            f"the checkpoints of {job.id} are in {earlier or 'the default directory'}: "
            f"{'leave the key out' if earlier is None else f'write directory: {earlier}'}",
            "checkpoint.directory",
        )


def require_own_checkpoints(spec: JobSpec, jobs: Iterable[JobRecord]) -> None:
    """Check that a job does not begin in a directory that has the checkpoints of another.

    Only absolute directories can be shared. The job that saved there last counts.

    Raises:
        Conflict: a job that has not ended uses the directory.
        SpecError: the directory has the checkpoints of another job, and the spec does not name it.
    """
    directory = spec.checkpoint.directory
    if directory is None or spec.study is not None or not PurePosixPath(directory).is_absolute():
        return
    sharing = [job for job in jobs if _directory_of(job) == PurePosixPath(directory)]
    for job in sharing:
        if not job.phase.is_final:
            raise Conflict(
                f"checkpoint.directory: {directory} is that of {job.id}, which is {job.phase}: "
                "choose another directory, or wait for its end"
            )
    saved = [job for job in sharing if has_saved(job)]
    if not saved:
        return
    last = max(saved, key=lambda job: job.number)
    if last.files_of == spec.resumes or spec.checkpoint.adopt in (last.files_of, last.spec.name):
        return
    raise SpecError(
        f"{directory} has the checkpoints of {last.id}: `castor resume {last.id}` goes on from "
        "them; choose another directory to start from the beginning, or say in the job file "
        f"that this job takes them over, with checkpoint: {{directory: {directory}, adopt: "
        f"{last.spec.name}}}",
        "checkpoint.directory",
    )


def _directory_of(job: JobRecord) -> PurePosixPath | None:
    directory = job.spec.checkpoint.directory
    return None if directory is None or job.spec.study is not None else PurePosixPath(directory)


def _with_rest_of_budget(job: str, objective: Objective, spent_usd: Decimal) -> Objective:
    if objective.budget_usd is None:
        return objective
    left_usd = objective.budget_usd - spent_usd
    if left_usd <= 0:
        raise SpecError(
            f"${objective.budget_usd} are used up: {job} has spent ${spent_usd:.2f}; give the "
            f"next run one of its own: castor resume {job} objective=budget=USD",
            "objective.budget",
        )
    return replace(objective, budget_usd=left_usd)
