"""Results of a simulated study: its cost and finish, and the ends of its trials."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.spending import LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.studies.driver import DrivenTrial, StudyDriver, TrialReport
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one trial.

    `end` is complete, pruned or stopped; `curve` is the name of its curve.
    """

    number: int
    job: str
    curve: str
    end: str
    reports: tuple[TrialReport, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """Number of instances from a time on, and their total price."""

    at_s: float
    instances: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Result of one study.

    `in_time` is None without a deadline. `best` is the best value of a complete trial. `launches`
    counts instances, `hand_overs` their changes of trial. `barriers_s` are the times at which a
    rung was complete. `held` lists the changes of held instances.
    """

    name: str
    finished_s: float
    deadline_s: float | None
    in_time: bool | None
    cost_usd: float
    budget_usd: float | None
    maximize: bool
    best: float | None
    ends: dict[str, int]
    launches: int
    hand_overs: int
    barriers_s: tuple[float, ...]
    trials: tuple[TrialResult, ...]
    held: tuple[Level, ...]


def study_result(driver: StudyDriver, store: Store) -> StudyResult:
    """Return the result of a study that has ended, with costs from the ledger in `store`."""
    study, trials = driver.study, driver.trials
    instances = [
        held for trial in trials for held in store.instances.of_job(trial.job, include_ended=True)
    ]
    finished_seconds = max(trial.ended_seconds or 0.0 for trial in trials)
    ended_seconds = max((held.ended_seconds or 0.0 for held in instances), default=0.0)
    entries = store.ledger.entries()
    costs = Ledger(entries).by_job(ended_seconds)
    deadline_seconds = study.objective.deadline_seconds
    budget = study.objective.budget_usd
    return StudyResult(
        name=study.name,
        finished_s=finished_seconds,
        deadline_s=deadline_seconds,
        in_time=None if deadline_seconds is None else finished_seconds <= deadline_seconds,
        cost_usd=float(sum((costs.get(trial.job, Decimal(0)) for trial in trials), Decimal(0))),
        budget_usd=None if budget is None else float(budget),
        maximize=study.maximize,
        best=driver.best,
        ends=dict(sorted(Counter(trial.ended or "" for trial in trials).items())),
        launches=sum(held.launched_seconds is not None for held in instances),
        hand_overs=_hand_overs(entries),
        barriers_s=tuple(driver.barriers),
        trials=tuple(_trial(trial) for trial in trials),
        held=tuple(_levels(instances)),
    )


def _trial(trial: DrivenTrial) -> TrialResult:
    curve = trial.training.trial.curve.trial
    return TrialResult(trial.number, trial.job, curve, trial.ended or "", tuple(trial.reports))


def _hand_overs(entries: Iterable[LedgerEntry]) -> int:
    payers: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        payers[entry.instance].add(entry.job)
    return sum(len(jobs) - 1 for jobs in payers.values())


def _levels(instances: Iterable[HeldInstance]) -> Iterator[Level]:
    changes: dict[float, list[tuple[int, Decimal]]] = defaultdict(list)
    for held in instances:
        if held.launched_seconds is not None and held.ended_seconds is not None:
            changes[held.launched_seconds].append((1, held.usd_per_hour))
            changes[held.ended_seconds].append((-1, -held.usd_per_hour))
    count, price = 0, Decimal(0)
    for at_seconds, changed in sorted(changes.items()):
        count += sum(delta for delta, _ in changed)
        price += sum((usd_delta for _, usd_delta in changed), Decimal(0))
        yield Level(at_seconds, count, float(price))
