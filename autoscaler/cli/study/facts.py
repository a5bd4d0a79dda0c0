"""State of a recorded study, as JSON and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from autoscaler.cli.tables import clock_time, counted, money
from autoscaler.domain.study import StudySpec
from autoscaler.domain.terms import TrialRecord
from autoscaler.domain.trial import StopRequest, StudyStop
from autoscaler.wire.study_messages import StudyView


@dataclass(frozen=True, slots=True)
class TrialCosts:
    """Records of the jobs of a study's trials, by job, and the cost of each in US dollars."""

    records: Mapping[str, TrialRecord]
    job_usd: Mapping[str, float]

    @classmethod
    def of(cls, view: StudyView | None, job_usd: Mapping[str, float]) -> TrialCosts:
        """Return the costs of a study that its controller knows; None: it knows nothing."""
        trials = () if view is None else view.trials
        return cls({record.stands.job: record for record in trials}, job_usd)

    def usd(self, trial: Any) -> float | None:
        """Return the cost of a recorded trial over all its jobs; None: not known.

        Trials that ran in one job after another have shares of its cost by their times.
        """
        parts = [self._part(job, trial.number) for job in jobs_of(trial)]
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None

    def shared_usd(self, trial: Any) -> float | None:
        """Return the cost of the last job of a trial, which has others, too; None: not known."""
        jobs = jobs_of(trial)
        return self.job_usd.get(jobs[-1]) if jobs and self.usd(trial) is None else None

    def _part(self, job: str, number: int) -> float | None:
        usd, record = self.job_usd.get(job), self.records.get(job)
        if usd is None or record is None or not record.results:
            return usd
        share = record.cost_shares.get(number)
        return None if share is None else usd * share


_NO_COSTS: Final = TrialCosts({}, {})


def study_facts(
    spec: StudySpec, study: Any, view: StudyView | None, costs: TrialCosts = _NO_COSTS
) -> dict[str, Any]:
    """Return the document that `castor study status --json` prints.

    Amounts are decimal numbers in strings. Times are seconds since the epoch. Facts that only a
    controller has are null if `view` is None: no controller here has run the study.
    """
    terms = None if view is None else view.terms
    goal = None if terms is None else terms.objective
    budget_usd = None if goal is None else goal.most_usd
    return {
        "name": spec.name,
        "directions": [direction.name.lower() for direction in study.directions],
        "driver": None if view is None else view.driver,
        "stop": None if view is None or view.stop is None else asdict(view.stop),
        "spent_usd": None if view is None or view.spent_usd is None else str(view.spent_usd),
        "budget_usd": None if budget_usd is None else str(budget_usd),
        "usd_per_hour": None if view is None else str(view.usd_per_hour),
        "deadline_seconds": None if goal is None else goal.deadline_seconds,
        "trouble": None if view is None else view.trouble,
        "counts": state_counts(study),
        "best_trials": [trial_facts(trial, costs) for trial in best_trials(study)],
        "trials": [trial_facts(trial, costs) for trial in study.trials],
    }


def trial_facts(trial: Any, costs: TrialCosts = _NO_COSTS) -> dict[str, Any]:
    """Return what is recorded of a trial, and its cost.

    `seconds` are null until it has ended. `usd` is null if its cost is not known: `job_usd` is
    then that of its job, which may have other trials, too.
    """
    from hpo.protocol import attributes

    usd, job_usd = costs.usd(trial), costs.shared_usd(trial)
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "values": trial.values,
        "step": trial.last_step,
        "seconds": None if trial.duration is None else trial.duration.total_seconds(),
        "usd": None if usd is None else f"{usd:.6f}",
        "job_usd": None if job_usd is None else f"{job_usd:.6f}",
        "params": trial.params,
        "job": trial.user_attrs.get(attributes.JOB),
        "cause": trial.user_attrs.get(attributes.CAUSE),
    }


def jobs_of(trial: Any) -> tuple[str, ...]:
    """Return the ids of all jobs that ran a trial, in all runs of its study."""
    from hpo.protocol import attributes

    earlier = trial.user_attrs.get(attributes.EARLIER_JOBS, ())
    job = trial.user_attrs.get(attributes.JOB)
    return (*earlier, job) if job is not None else tuple(earlier)


def best_trials(study: Any) -> list[Any]:
    """Return the best trial, or the Pareto front; empty if no complete trial is feasible."""
    if len(study.directions) > 1:
        return list(study.best_trials)
    try:
        return [study.best_trial]
    except ValueError:  # no trial is complete and feasible
        return []


def state_counts(study: Any) -> dict[str, int]:
    """Return the number of trials by state, in the order in which states first occur."""
    states = [trial.state.name.lower() for trial in study.trials]
    return {state: states.count(state) for state in dict.fromkeys(states)}


def summary(spec: StudySpec, study: Any) -> str:
    """Return a line with a study's trials by state and its best trial."""
    counts = state_counts(study)
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    line = f"{spec.name}: {counted(sum(counts.values()), 'trial')}" + (
        f" ({words})" if words else ""
    )
    best = best_trials(study)
    if len(study.directions) > 1 or not best:
        return line
    parameters = ", ".join(f"{name}={shortened(value)}" for name, value in best[0].params.items())
    return f"{line}; best is {best[0].value:.6g}, trial {best[0].number} with {parameters}"


def money_line(view: StudyView) -> str:
    """Return a line with a study's spending and driver, and others with its stop and its error."""
    budget_usd = None if view.terms is None else view.terms.objective.most_usd
    budget = "" if budget_usd is None else f" of {money(budget_usd)}"
    rate = f", {money(view.usd_per_hour)}/h now" if view.usd_per_hour else ""
    line = f"{spent_words(view)}{budget} spent{rate}; driver: {view.driver or 'none'}"
    if view.stop is not None:
        line += f"\n{stop_words(view.stop)}"
    return line if view.trouble is None else f"{line}\nerror: {view.trouble}"


def stop_words(request: StopRequest) -> str:
    """Return a line that says how a study stops, and who requested it when."""
    how = "its running trials, too" if request.stop is StudyStop.AT_ONCE else "after its trials"
    if request.at_seconds is None:
        return f"stopping: {how}"
    return f"stopping: {how}; requested by {request.person}, {clock_time(request.at_seconds)}"


def spent_words(view: StudyView) -> str:
    """Return the cost of a study in words; a question mark if the ledger does not know it."""
    return "?" if view.spent_usd is None else money(view.spent_usd)


def shortened(value: object) -> str:
    """Return a parameter's value as text, a float with 4 significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
