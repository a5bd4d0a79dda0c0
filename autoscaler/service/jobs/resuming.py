"""Resumption of a job from the checkpoint of an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from autoscaler.controller.act.job_end import has_ended_early
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.service.files.stored import has_checkpoint
from autoscaler.wire.messages import Resumption


def require_ended(job: JobRecord, instances: Sequence[HeldInstance]) -> None:
    """Check that the phase of a job allows its resumption.

    `instances` are all instances of the job so far.

    Raises:
        Conflict: the job has not ended, its training is complete, or it is a trial.
    """
    if job.spec.study is not None:
        raise Conflict(
            f"{job.id} is a trial of the study {job.spec.study}: start the study again, which "
            "resumes its trials"
        )
    if not job.phase.is_final:
        raise Conflict(f"job {job.id} is {job.phase}: only one that has ended can be resumed")
    if job.phase is JobPhase.FINISHED and not has_ended_early(instances):
        raise Conflict(
            f"the training of {job.id} is complete: there is nothing to go on with; submit it "
            "again to train anew"
        )
    instances_left = sum(held.phase is not InstancePhase.ENDED for held in instances)
    if instances_left:
        raise Conflict(
            f"{job.id} still gives {instances_left} of its instances back: resume it in a moment"
        )


def resumed_spec(job: JobRecord, resumption: Resumption, spent_usd: Decimal) -> JobSpec:
    """Return the spec of the next run of a job.

    Its budget is the rest after `spent_usd`, unless the change has an objective. The known maximum
    batch of each device applies if the run has the same script. A shard to be chosen stays as it
    was chosen for the earlier run.

    Raises:
        SpecError: the budget is used up, or the resumption's spec is of another job.
    """
    spec = resumption.spec or job.spec
    if spec.parallelism.is_undecided:
        spec = replace(spec, parallelism=job.spec.parallelism)
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
    """Return whether two specs need the same device memory for an example, as far as is known."""

    def script_of(run_spec: JobSpec) -> tuple[object, ...]:
        """Return the parts of a spec that may change the memory of an example."""
        batch = replace(run_spec.batch, kind_maxima=())
        files = run_spec.bundle, run_spec.image, run_spec.setup, run_spec.data
        shard = run_spec.parallelism.shard
        return (run_spec.command, dict(run_spec.environment), *files, batch, shard)

    return script_of(spec) == script_of(earlier)


def _require_same_job(spec: JobSpec, job: JobRecord) -> None:
    """Check that a spec has the name and the checkpoint directory of the resumed job.

    Raises:
        SpecError: they differ.
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


def require_own_checkpoints(
    spec: JobSpec, jobs_of_directory: Callable[[str], Sequence[JobRecord]]
) -> JobRecord | None:
    """Check that a new job does not start in a directory with the checkpoints of another job.

    Only absolute directories can be shared: `jobs_of_directory` is called for them alone. The last
    job that saved there counts. Return the job whose checkpoints the new one goes on from there;
    None if there are none.

    Raises:
        Conflict: a running job uses the directory.
        SpecError: the directory has the checkpoints of another job that the spec does not name.
    """
    directory = spec.shared_directory
    if directory is None:
        return None
    sharing = jobs_of_directory(directory)
    for job in sharing:
        if not job.phase.is_final:
            raise Conflict(
                f"checkpoint.directory: {directory} is that of {job.id}, which is {job.phase}: "
                "choose another directory, or wait for its end"
            )
    saved = [job for job in sharing if has_checkpoint(job)]
    if not saved:
        return None
    last = max(saved, key=lambda job: job.number)
    if last.files_of == spec.resumes or spec.checkpoint.adopt in (last.files_of, last.spec.name):
        return last
    raise SpecError(
        f"{directory} has the checkpoints of {last.id}: `castor resume {last.id}` goes on from "
        "them; choose another directory to start from the beginning, or say in the job file "
        f"that this job takes them over, with checkpoint: {{directory: {directory}, adopt: "
        f"{last.spec.name}}}",
        "checkpoint.directory",
    )


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
