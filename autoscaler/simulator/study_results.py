"""A simulated study as numbers: what it cost, when it was over, how its trials ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.spending import LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.study_driver import DrivenTrial, Report, StudyDriver
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial, by its number: `end` is complete, pruned or stopped; `curve` is whose it had."""

    number: int
    job: str
    curve: str
    end: str
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """So many instances from a moment on, and what they cost together."""

    at_s: float
    instances: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class StudyResult:
    """One study. `in_time` is None without a deadline; `best` is of the trials that are complete.

    `launches` are of instances, `hand_overs` from a trial to the next. `barriers_s` is when all
    trials of a rung had come to it; `held` is what was held until the next of its moments.
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
    """The result of a study that has ended, its costs from the ledger in `store`."""
    study, trials = driver.study, driver.trials
    every = [
        held for trial in trials for held in store.instances.of_job(trial.job, include_ended=True)
    ]
    finished_seconds = max(trial.ended_seconds or 0.0 for trial in trials)
    ended_seconds = max((held.ended_seconds or 0.0 for held in every), default=0.0)
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
        launches=sum(held.launched_seconds is not None for held in every),
        hand_overs=_hand_overs(entries),
        barriers_s=tuple(driver.barriers),
        trials=tuple(_trial(trial) for trial in trials),
        held=tuple(_levels(every)),
    )


def _trial(trial: DrivenTrial) -> TrialResult:
    curve = trial.training.trial.curve.trial
    return TrialResult(trial.number, trial.job, curve, trial.ended or "", tuple(trial.reports))


def _hand_overs(entries: Iterable[LedgerEntry]) -> int:
    payers: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        payers[entry.instance].add(entry.job)
    return sum(len(jobs) - 1 for jobs in payers.values())


def _levels(every: Iterable[HeldInstance]) -> Iterator[Level]:
    changes: dict[float, list[tuple[int, Decimal]]] = defaultdict(list)
    for held in every:
        if held.launched_seconds is not None and held.ended_seconds is not None:
            changes[held.launched_seconds].append((1, held.usd_per_hour))
            changes[held.ended_seconds].append((-1, -held.usd_per_hour))
    count, price = 0, Decimal(0)
    for at_seconds, changed in sorted(changes.items()):
        count += sum(more for more, _ in changed)
        price += sum((more for _, more in changed), Decimal(0))
        yield Level(at_seconds, count, float(price))
