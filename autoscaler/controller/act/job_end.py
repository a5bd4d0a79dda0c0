"""End of a job: replicas that are done, and the replica that reports the job's end.

The deciding replica saves the job's last state and then reports that the job is complete. The
other replicas leave earlier and do not know the outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.report import Ending, TrainingReport
from autoscaler.domain.trial import TrialEnding

_AT_WORK = (
    InstancePhase.PREPARING,
    InstancePhase.READY,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.WAITING,
    InstancePhase.DRAINING,
)


def has_done_its_part(held: HeldInstance, job: JobRecord) -> bool:
    """Return whether the instance has nothing left to do in the job's present attempt."""
    return held.completed_seconds is not None or held.done_attempt == job.attempt


def is_over(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Return whether training has reached its end in this attempt.

    `instances` are all that the job ever had.
    """
    return any(has_done_its_part(held, job) for held in instances)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job: its final phase, the kind of event and the text."""

    phase: JobPhase
    kind: str
    text: str

    @property
    def cause(self) -> str | None:
        """The text shown beside the phase; None where training is complete."""
        return None if self.kind == "finished" else self.text


def trial_ending(instances: Iterable[HeldInstance]) -> TrialEnding | None:
    """Return how the job's trial ended, or None; `instances` are all the job ever had."""
    endings = (held.trial_ending for held in instances)
    return next((ending for ending in endings if ending is not None), None)


def end_of(job: JobRecord, instances: Iterable[HeldInstance]) -> JobEnd:
    """Return the end of a job that a replica has completed, or of a trial that has ended.

    `instances` are all it ever had.
    """
    all_instances = tuple(instances)
    ends = ((held.trial_ending, held.trial_cause) for held in all_instances)
    ending, cause = next((end for end in ends if end[0] is not None), (None, None))
    match ending:
        case TrialEnding.FAILED:
            return JobEnd(JobPhase.FAILED, "failed", cause or "its trial failed")
        case TrialEnding.PRUNED:
            return JobEnd(JobPhase.STOPPED, "pruned", cause or "its trial was pruned")
    completed = tuple(held for held in all_instances if held.completed_seconds is not None)
    if ending is TrialEnding.COMPLETE and not completed:
        return JobEnd(JobPhase.FINISHED, "finished", "its trial is complete")
    return JobEnd(JobPhase.FINISHED, *_script_end(job, completed))


def _script_end(job: JobRecord, completed: Collection[HeldInstance]) -> tuple[str, str]:
    """Return the kind of event and the text for a job that its replicas have `completed`."""
    endings = {held.script_ending or Ending.COMPLETE for held in completed}
    if Ending.COMPLETE in endings:
        return "finished", "its training is complete"
    if Ending.EARLY not in endings:
        return "exited", "its script exited with status 0; it opened no training session"
    report = job.report
    reasons = (held.stop_reason for held in completed)
    reason = next((text for text in reasons if text is not None), None)
    if report is not None and reason is not None:
        return "stopped early", f"its script stopped {_after(report)}: {reason}"
    if report is None:
        return "ended early", "its script exited with status 0 before it had trained a step"
    return (
        "ended early",
        f"its script exited with status 0 {_after(report)}: its training is not complete",
    )


def _after(report: TrainingReport) -> str:
    total = report.total_examples
    of_total = "" if total is None else f" of {total:,.0f}"
    return f"after {report.progress_examples:,.0f}{of_total} examples"


def has_ended_early(instances: Iterable[HeldInstance]) -> bool:
    """Return whether a job's script ended well before its total; `instances` are all it had."""
    endings = {held.script_ending for held in instances}
    return Ending.EARLY in endings and Ending.COMPLETE not in endings


def at_work(job: JobRecord, instances: Iterable[HeldInstance]) -> list[HeldInstance]:
    """Return the instances that may still report the job's end."""
    return [
        held for held in instances if held.phase in _AT_WORK and not has_done_its_part(held, job)
    ]
