"""Successive halving under a deadline: what the same search costs by who plans its instances.

    CASTOR_DATA=... python benchmarks/study_rungs.py [--seeds 100] [--ablations]

27 configurations, eta 3, rungs at 2, 6, 17 and 52 epochs. Curves and times are LCBench's, scaling
is measured (`study_cases.py`). Every arm has the same trials, reports, boots, pauses, reclaims and
prices, and the same trials survive: only money and time differ. Deadlines are multiples of the
fastest there can be for a case: one boot, then every trial of every rung at its fastest size.

Arms that know everything: the best pool of fixed size (`study_pools.py`), per-stage elastic and
uniform with release (`study_stages.py`), water-filling (`study_water.py`: the oracle). Arms that
learn, from `PILOTS` trials of an earlier study and from what they measure on the way, and do not
know who survives: water-filling, which is the product's plan, and per-stage elastic in waves.
Seeds 0 to 99 are for development, those from 100 on held out. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from data_folder import data_folder
from study_cases import Case, Market, Source, cases, read_source
from study_cloud import Arm, Outcome, StudyCloud
from study_pools import RULES, pools
from study_stages import LearntStages, best_stages, courses
from study_water import Learnt, WaterArm, oracle_outcome

from autoscaler.economics.studies.rungs.synchronous import RESERVE

MULTIPLES = (1.1, 1.25, 1.5, 2.0, 4.0)
ORACLE = "water-filling, knows all (oracle)"
OURS = "water-filling, learns"
PER_STAGE_AT_ONCE = "per-stage elastic, all trials at once"
PER_STAGE = "per-stage elastic, in waves"
UNIFORM_AT_ONCE = "uniform + release, all trials at once"
UNIFORM = "uniform + release, in waves"
STAGES_LEARN = "per-stage in waves, learns"
STATIC = "best static pool"
_LATE = 1.0005

ABLATIONS = {
    "as above": Market(),
    "boot 30 s": Market(boot_seconds=30.0),
    "boot 600 s": Market(boot_seconds=600.0),
    "pause 300 s": Market(pause_seconds=300.0),
    "an hour billed at least": Market(minimum_billed_seconds=3600),
    "4 devices an instance": Market(devices=4),
    "spot, 0.2 reclaims/h": Market(reclaims_per_hour=0.2),
}


@dataclass(frozen=True)
class Result:
    """What an arm came to at one deadline; infinite cost where it never could be in time."""

    usd: float
    seconds: float
    in_time: bool


def fastest_seconds(case: Case) -> float:
    """One boot, then every trial at its fastest size, all at once."""
    market = case.market
    rungs = [
        max(case.work[rung] / case.rate[trial].max() for trial in alive)
        for rung, alive in enumerate(case.survivors)
    ]
    handovers = market.handover_seconds * (len(rungs) - 1)
    return market.boot_seconds + market.start_seconds + handovers + float(sum(rungs))


def results(case: Case, multiples: Sequence[float]) -> Iterator[tuple[str, float, Result]]:
    """(arm, multiple, result) of one case."""
    fastest = fastest_seconds(case)
    swept = {
        name: [StudyCloud(case, p).run() for p in pools(case, rule)]
        for name, rule in RULES.items()
    }
    stages = {
        name: courses(case, releases, waves=waves) for name, (releases, waves) in _STAGES.items()
    }
    for multiple in multiples:
        deadline = fastest * multiple
        for name, outcomes in swept.items():
            in_time = [one for one in outcomes if one.seconds <= deadline]
            yield name, multiple, _best(in_time)
        for name, (releases, _) in _STAGES.items():
            found = best_stages(case, deadline, releases, stages[name])
            yield name, multiple, _best([found] if found else [])
        yield ORACLE, multiple, _result(oracle_outcome(case, deadline), deadline)
        arms: dict[str, Arm] = {
            OURS: WaterArm(case, Learnt(case), deadline, RESERVE),
            STAGES_LEARN: LearntStages(case, Learnt(case), deadline),
        }
        for name, arm in arms.items():
            yield name, multiple, _result(StudyCloud(case, arm).run(), deadline)


# Whether instances are released within a stage, and whether its trials may run in waves.
_STAGES = {
    PER_STAGE_AT_ONCE: (False, False),
    PER_STAGE: (False, True),
    UNIFORM_AT_ONCE: (True, False),
    UNIFORM: (True, True),
}


def _result(outcome: Outcome, deadline_seconds: float) -> Result:
    return Result(outcome.usd, outcome.seconds, outcome.seconds <= deadline_seconds * _LATE)


def _best(outcomes: Sequence[Outcome]) -> Result:
    if not outcomes:
        return Result(math.inf, math.inf, False)
    best = min(outcomes, key=lambda one: one.usd)
    return Result(best.usd, best.seconds, True)


@dataclass(frozen=True)
class Table:
    """Results of all cases at one deadline: by arm, in the order of the cases."""

    by_arm: dict[str, list[Result]]

    @property
    def feasible(self) -> list[int]:
        """The cases in which the best pool, the stage plans and the oracle are all in time."""
        knowing = [self.by_arm[name] for name in (STATIC, PER_STAGE, UNIFORM, ORACLE)]
        return [i for i in range(len(knowing[0])) if all(rows[i].in_time for rows in knowing)]

    def usd(self, arm: str, among: Sequence[int]) -> np.ndarray:
        """What an arm cost in these cases."""
        return np.array([self.by_arm[arm][case].usd for case in among])

    def difference(self, arm: str, other: str, among: Sequence[int]) -> str:
        """How much less or more an arm costs than another, with its standard error."""
        if len(among) < 2:
            return "-"
        ratio = self.usd(arm, among) / self.usd(other, among) - 1.0
        error = ratio.std(ddof=1) / math.sqrt(len(ratio))
        return f"{100 * ratio.mean():+.1f} +- {100 * error:.1f} %"


def tables(cases_: Sequence[Case], multiples: Sequence[float]) -> dict[float, Table]:
    """All results by deadline."""
    found: dict[float, Table] = {multiple: Table({}) for multiple in multiples}
    for case in cases_:
        for arm, multiple, result in results(case, multiples):
            found[multiple].by_arm.setdefault(arm, []).append(result)
    return found


def print_tables(found: dict[float, Table]) -> None:
    """Mean cost of each arm, in how many cases it was in time, and the paired differences."""
    multiples = list(found)
    some = found[multiples[0]].by_arm
    print("| | " + " | ".join(f"{m:g} x" for m in multiples) + " |")
    print("|---|" + "---|" * len(multiples))
    cases_ = len(next(iter(some.values())))
    counts = (f"{len(found[m].feasible)} of {cases_}" for m in multiples)
    print("| cases of the means | " + " | ".join(counts) + " |")
    for arm in some:
        cells = []
        for table in found.values():
            usd = table.usd(arm, table.feasible)
            kept = sum(row.in_time for row in table.by_arm[arm])
            mean = f"${usd.mean():.2f}" if len(usd) and np.isfinite(usd).all() else "-"
            cells.append(f"{mean} ({kept})")
        print(f"| {arm} | " + " | ".join(cells) + " |")
    print("\n| paired | " + " | ".join(f"{m:g} x" for m in multiples) + " |")
    print("|---|" + "---|" * len(multiples))
    for arm, other in _PAIRS:
        cells = [t.difference(arm, other, _both(t, arm, other)) for t in found.values()]
        print(f"| {arm} v {other} | " + " | ".join(cells) + " |")


_PAIRS = (
    (ORACLE, STATIC),
    (ORACLE, PER_STAGE_AT_ONCE),
    (ORACLE, PER_STAGE),
    (ORACLE, UNIFORM_AT_ONCE),
    (ORACLE, UNIFORM),
    (OURS, STATIC),
    (OURS, PER_STAGE_AT_ONCE),
    (OURS, PER_STAGE),
    (OURS, UNIFORM_AT_ONCE),
    (OURS, UNIFORM),
    (OURS, ORACLE),
    (OURS, STAGES_LEARN),
)


def _both(table: Table, arm: str, other: str) -> list[int]:
    """Cases in which both are in time: a late study is no cheap one."""
    rows = zip(table.by_arm[arm], table.by_arm[other], strict=True)
    return [index for index, (a, b) in enumerate(rows) if a.in_time and b.in_time]


def print_ablations(source: Source, seeds: Sequence[int], multiple: float) -> None:
    """The same on other terms, at one deadline, over every third case."""
    print("| | oracle v per-stage | oracle v uniform | ours v oracle | ours in time |")
    print("|---|---|---|---|---|")
    for name, market in ABLATIONS.items():
        table = tables(cases(source, market, seeds)[::3], [multiple])[multiple]
        pairs = (ORACLE, PER_STAGE), (ORACLE, UNIFORM), (OURS, ORACLE)
        cells = [table.difference(a, b, _both(table, a, b)) for a, b in pairs]
        kept = [
            o.in_time
            for o, r in zip(table.by_arm[OURS], table.by_arm[ORACLE], strict=True)
            if r.in_time
        ]
        print(f"| {name} | " + " | ".join(cells) + f" | {sum(kept)} of {len(kept)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--multiples", type=float, nargs="+", default=MULTIPLES)
    options = parser.parse_args()
    source = read_source(data_folder("hpo and pollux/app-profiles"))
    if options.ablations:
        print_ablations(source, options.seeds, options.multiples[0])
        return
    print_tables(tables(cases(source, Market(), options.seeds), options.multiples))


if __name__ == "__main__":
    main()
