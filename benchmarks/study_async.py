"""Asynchronous studies: how good a model is found for how much money and in what time.

    CASTOR_DATA=... python benchmarks/study_async.py [--pruner hyperband] [--plot FILE.png]

Optuna's own pruners on a virtual clock (`search_cloud.py`), LCBench's curves and times, measured
scaling (`study_cases.py`). Each arm (`search_arms.py`) has the same budget, deadline, quota,
configurations in the same order, reports and speeds; a study ends when its deadline or its budget
does. Pools are swept, and the one of least mean regret at the end counts: no one could know it
before. Regret is of the model that was reported best so far: its distance from the best of all
256 configurations, over that of the median one. A study is late whose best trial is cut off in
training, or that has trained none to its end. Seeds from 100 on are held out. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
from data_folder import data_folder
from search_arms import (
    HyperSched,
    Plain,
    RayPool,
    Reserve,
    ray_top_job,
    ray_uniform,
)
from search_cloud import SearchArm, SearchCase, SearchCloud, SearchOutcome, SearchTerms
from search_cloud import search_cases as cases
from search_product import Product
from study_cases import Array, Market, read_source

OURS = "product"
RESERVE = "reserve"
PLAIN = "plain, best pool"
# Hours and $: as much as the quota can spend where the deadline is tight, then the same budget.
LIMITS = ((0.4, 16.0), (0.75, 30.0), (1.5, 30.0), (3.0, 30.0), (6.0, 30.0))
QUOTA = 16
POOLS = (1, 2, 4, 8, 16)
FRACTIONS = (0.25, 0.5, 0.75, 1.0)
AXIS = np.linspace(0.02, 1.0, 50)
TERMS = {
    "as above": Market(most_devices=QUOTA),
    "boot 30 s": Market(most_devices=QUOTA, boot_seconds=30.0),
    "boot 600 s": Market(most_devices=QUOTA, boot_seconds=600.0),
    "pause 300 s": Market(most_devices=QUOTA, pause_seconds=300.0),
    "an hour billed at least": Market(most_devices=QUOTA, minimum_billed_seconds=3600),
}

# What makes an arm of one family, by the size of its pool.
Maker = Callable[[SearchCase, SearchTerms], SearchArm]


def families() -> dict[str, list[Maker]]:
    """Each family with what it is swept over."""
    split = [(size, size // part) for size in POOLS for part in (2, 4) if size >= part]
    return {
        PLAIN: [lambda case, terms, size=size: Plain(case, size) for size in POOLS],  # type: ignore[misc]
        "Ray Tune uniform, best pool": [
            lambda case, terms, s=size, n=at_once: RayPool(case, s, n, ray_uniform)  # type: ignore[misc]
            for size, at_once in split
        ],
        "Ray Tune top job, best pool": [
            lambda case, terms, s=size, n=at_once: RayPool(case, s, n, ray_top_job)  # type: ignore[misc]
            for size, at_once in split
        ],
        "HyperSched, best pool": [
            lambda case, terms, size=size: HyperSched(case, size, terms)  # type: ignore[misc]
            for size in POOLS
        ],
        RESERVE: [lambda case, terms: Reserve(case, terms, QUOTA)],
        OURS: [Product],
    }


@dataclass(frozen=True, eq=False)
class Course:
    """All cases of one arm: regret over time and over spend, (C, 50) each, and the outcomes."""

    over_time: Array
    over_spend: Array
    outcomes: tuple[SearchOutcome, ...]

    @property
    def last(self) -> Array:
        """Regret at the end, (C,)."""
        return np.array([one.last for one in self.outcomes])


def course(cases_: Sequence[SearchCase], terms: SearchTerms, maker: Maker) -> Course:
    """Run an arm on all cases."""
    outcomes = tuple(SearchCloud(case, maker(case, terms), terms).run_search() for case in cases_)
    seconds, usd = AXIS * terms.deadline_seconds, AXIS * terms.budget_usd
    return Course(
        np.stack([one.at(seconds, one.seconds) for one in outcomes]),
        np.stack([one.at(usd, one.usd) for one in outcomes]),
        outcomes,
    )


def courses(
    cases_: Sequence[SearchCase], terms: SearchTerms, arms: Sequence[str]
) -> dict[str, Course]:
    """The best of each family that is named: of least mean regret at the end."""
    best = {}
    for name in arms:
        makers = families()[name]
        swept = [course(cases_, terms, maker) for maker in makers]
        best[name] = min(swept, key=lambda one: float(one.last.mean()))
    return best


def difference(ours: Array, other: Array) -> str:
    """Mean of the paired differences, its standard error, wins and losses."""
    gap = ours - other
    error = gap.std(ddof=1) / math.sqrt(len(gap))
    won, lost = int((gap < -1e-9).sum()), int((gap > 1e-9).sum())
    return f"{gap.mean():+.3f} +- {error:.3f} ({won}:{lost})"


def rows(found: Mapping[str, Course], title: str) -> Iterator[str]:
    """One line an arm: regret, spend, how many were late, trials."""
    yield f"\n| {title} | regret | spent | late | begun | at their ends | cut | resizes |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in found.items():
        outcomes = one.outcomes
        late = sum(not outcome.leader_done for outcome in outcomes)
        means = [
            np.mean([getattr(outcome, field) for outcome in outcomes])
            for field in ("spent_usd", "started", "finished", "cut", "resizes")
        ]
        yield (
            f"| {name} | {one.last.mean():.3f} | ${means[0]:.2f} | {late} of {len(outcomes)} "
            f"| {means[1]:.0f} | {means[2]:.1f} | {means[3]:.1f} | {means[4]:.1f} |"
        )


def paired(found: Mapping[str, Course]) -> Iterator[str]:
    """The last arm against each: at parts of the time and of the budget."""
    heads = [f"{part:.0%} of the time" for part in FRACTIONS]
    heads += [f"{part:.0%} of the budget" for part in FRACTIONS]
    yield f"\n| {list(found)[-1]}: regret less that of | " + " | ".join(heads) + " |"
    yield "|---|" + "---|" * len(heads)
    places = [int(np.argmin(np.abs(AXIS - part))) for part in FRACTIONS]
    last = list(found)[-1]
    ours = found[last]
    for name, other in found.items():
        if name == last:
            continue
        cells = [difference(ours.over_time[:, p], other.over_time[:, p]) for p in places]
        cells += [difference(ours.over_spend[:, p], other.over_spend[:, p]) for p in places]
        yield f"| {name} | " + " | ".join(cells) + " |"


def as_json(
    found: Mapping[tuple[float, float], Mapping[str, Course]], pruner: str
) -> list[dict[str, object]]:
    """One entry a limit and arm, cases in their order."""
    return [
        {
            "pruner": pruner,
            "hours": hours,
            "arm": name,
            "regret": one.last.tolist(),
            "late": [not outcome.leader_done for outcome in one.outcomes],
            "usd": [outcome.spent_usd for outcome in one.outcomes],
            "over_time": one.over_time.tolist(),
        }
        for (hours, _), arms in found.items()
        for name, one in arms.items()
    ]


def plot(found: Mapping[tuple[float, float], Mapping[str, Course]], path: Path) -> None:
    """Mean regret over time and over spend, a column a deadline."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(found), figsize=(3.2 * len(found), 6), sharey=True)
    for column, ((hours, usd), arms) in enumerate(found.items()):
        for row, (whole, unit) in enumerate(((hours, "hours"), (usd, "$"))):
            axis = axes[row][column]
            for name, one in arms.items():
                mean = (one.over_spend if row else one.over_time).mean(axis=0)
                width = 2.2 if name == list(arms)[-1] else 1.1
                axis.plot(AXIS * whole, mean, label=name, linewidth=width)
            axis.set_xlabel(unit)
            axis.grid(alpha=0.3)
            axis.set_ylim(0, 1)
        axes[0][column].set_title(f"{hours:g} h, ${usd:g}")
    axes[0][0].set_ylabel("regret")
    axes[1][0].set_ylabel("regret")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=3)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=90)


def print_other_terms(seeds: Sequence[int], limit: tuple[float, float], pruner: str) -> None:
    """Ours against plain trials on other terms, at one deadline."""
    source = read_source(data_folder("hpo and pollux/app-profiles"))
    terms = SearchTerms(limit[0] * 3600.0, limit[1], pruner)
    print("| | plain, best pool | product | paired | late: plain, product |")
    print("|---|---|---|---|---|")
    for name, market in TERMS.items():
        cases_ = cases(source, market, seeds)
        plain = min(
            (course(cases_, terms, maker) for maker in families()[PLAIN]),
            key=lambda one: float(one.last.mean()),
        )
        ours = course(cases_, terms, Product)
        late = [sum(not o.leader_done for o in one.outcomes) for one in (plain, ours)]
        print(
            f"| {name} | {plain.last.mean():.3f} | {ours.last.mean():.3f} | "
            f"{difference(ours.last, plain.last)} | {late[0]}, {late[1]} |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103])
    parser.add_argument("--pruner", choices=("asha", "hyperband"), default="asha")
    parser.add_argument("--limits", type=int, nargs="+", default=list(range(len(LIMITS))))
    parser.add_argument("--terms", action="store_true", help="other terms, at the first limit")
    parser.add_argument("--arms", nargs="+", default=list(families()), choices=list(families()))
    parser.add_argument("--json", type=Path, help="regrets and late cases of each arm, as JSON")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if options.terms:
        print_other_terms(options.seeds, LIMITS[options.limits[0]], options.pruner)
        return
    source = read_source(data_folder("hpo and pollux/app-profiles"))
    cases_ = cases(source, Market(most_devices=QUOTA), options.seeds)
    found = {}
    for hours, usd in (LIMITS[place] for place in options.limits):
        terms = SearchTerms(hours * 3600.0, usd, options.pruner)
        found[hours, usd] = courses(cases_, terms, options.arms)
        title = f"{options.pruner}, {hours:g} h, ${usd:g}"
        for line in (*rows(found[hours, usd], title), *paired(found[hours, usd])):
            print(line)
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(as_json(found, options.pruner), indent=1))
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
