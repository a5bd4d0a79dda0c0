"""Costs of first runs under conditions that the goodput model does not foresee.

Of each 20 runs 12 have a cliff (steps 1.5, 3 or 10 times as long from 2, 3, 4 or 8 nodes of a kind
on), 3 a drift (one size becomes 3 times slower after 20 or 60 minutes), 2 a kind of device that is
5 times slower or faster than expected, and 3 noise scales reported 4 times too large or too small.
Applications are the published ones, where CASTOR_DATA names their folder, and those of
`made_up.py`. Each run is of a program without history, at $1, $10 or $100 per hour of waiting.
Costs are relative to those of a clairvoyant plan, which knows the perturbation too.

    CASTOR_DATA=... python benchmarks/held_out.py [--seed 1] [--cases 200] [--json]
    CASTOR_DATA=... python benchmarks/held_out.py --case imagenet:100:dgx-ext:2:3
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from clairvoyant_drift import limit_usd
from elastic_cloud import Setup, Subject, published_subjects, run_job, subjects_in
from made_up import NATURES, write_case
from perturbations import Case, draw_cases, named_case
from rich.console import Console
from rich.progress import track

_WORST = 10


@dataclass(frozen=True)
class Result:
    """Costs of one run and of the clairvoyant plan: dollars and priced waiting."""

    case: Case
    cost_usd: float
    least_usd: float

    @property
    def ratio(self) -> float:
        """Cost relative to the clairvoyant plan's."""
        return self.cost_usd / self.least_usd

    def as_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {
            "number": self.case.number,
            "subject": self.case.subject,
            "usd_per_hour": self.case.value_of_time,
            "kind": self.case.perturbation.name,
            "perturbation": str(self.case.perturbation),
            "cost_usd": self.cost_usd,
            "clairvoyant_usd": self.least_usd,
            "ratio": self.ratio,
        }


def run_case(subjects: Mapping[str, Subject], policy: str, case: Case) -> Result:
    """Simulate one case, and compute the clairvoyant cost."""
    subject, perturbation = subjects[case.subject], case.perturbation
    setup = Setup(
        subject.cloud,
        policy,
        case.value_of_time,
        case.seed,
        slowdowns=perturbation.slowdowns,
        noise_factor=perturbation.noise_factor,
    )
    cost_usd = run_job(subject.profile, setup).cost_usd(case.value_of_time)
    least_usd = limit_usd(
        subject.profile, subject.cloud, case.value_of_time, perturbation.slowdowns
    )
    return Result(case, cost_usd, least_usd)


def subjects_of(seed: int) -> dict[str, Subject]:
    """Return the synthetic applications of a seed and, if available, the published ones."""
    with tempfile.TemporaryDirectory() as folder:
        for name, nature in NATURES.items():
            write_case(Path(folder), name, nature, seed)
        subjects = subjects_in(Path(folder))
    if "CASTOR_DATA" in os.environ:
        return subjects | published_subjects()
    print(
        "CASTOR_DATA is not set: made-up applications only, without the published ones",
        file=sys.stderr,
    )
    return subjects


def most_nodes(subject: Subject) -> dict[str, int]:
    """Return the most nodes of a subject by kind of device as profiled."""
    most: dict[str, int] = defaultdict(int)
    for machine in subject.cloud.machines:
        most[machine.kind] = max(most[machine.kind], machine.most)
    return dict(most)


def figures(results: Iterable[Result]) -> dict[str, float]:
    """Return number, mean, 90th and 99th percentile and maximum of the relative costs."""
    ratios = [result.ratio for result in results]
    p90, p99 = np.percentile(ratios, [90, 99])
    return {
        "runs": len(ratios),
        "mean": float(np.mean(ratios)),
        "p90": float(p90),
        "p99": float(p99),
        "max": max(ratios),
    }


def grouped(
    results: Iterable[Result], key: Callable[[Result], object]
) -> dict[str, dict[str, float]]:
    """Return the statistics of groups of results, by the key's text."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[str(key(result))].append(result)
    return {name: figures(groups[name]) for name in sorted(groups)}


def summary(seed: int, results: Sequence[Result]) -> dict[str, object]:
    """Return all statistics and results of a run of this benchmark, as JSON values."""
    worst = sorted(results, key=lambda result: -result.ratio)[:_WORST]
    return {
        "seed": seed,
        "all": figures(results),
        "by_kind": grouped(results, lambda result: result.case.perturbation.name),
        "by_usd_per_hour": grouped(results, lambda result: f"{result.case.value_of_time:g}"),
        "worst": [result.as_json() for result in worst],
        "results": [result.as_json() for result in results],
    }


def print_summary(results: Sequence[Result]) -> None:
    """Print all statistics as Markdown."""
    print("| | runs | mean | p90 | p99 | max |\n|---|---|---|---|---|---|")
    rows = {
        "all": figures(results),
        **grouped(results, lambda result: result.case.perturbation.name),
        **grouped(results, lambda result: f"${result.case.value_of_time:g}/h"),
    }
    for name, row in rows.items():
        values = " | ".join(f"{row[column]:.3f}" for column in ("mean", "p90", "p99", "max"))
        print(f"| {name} | {row['runs']:g} | {values} |")
    print("\n| worst | $/h | perturbation | cost, $ | clairvoyant, $ | x |")
    print("|---|---|---|---|---|---|")
    for result in sorted(results, key=lambda result: -result.ratio)[:_WORST]:
        case = result.case
        print(
            f"| {case.subject} | {case.value_of_time:g} | {case.perturbation} "
            f"| {result.cost_usd:.2f} | {result.least_usd:.2f} | {result.ratio:.2f} |"
        )


def main() -> int:
    """Draw the cases of a seed, run them and print their costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of applications, cases and errors"
    )
    parser.add_argument("--cases", type=int, default=200, help="number of first runs")
    parser.add_argument(
        "--case",
        action="append",
        metavar="SUBJECT:USD_PER_HOUR:KIND:NODES:FACTOR[:MINUTES]",
        help="a cliff or, with MINUTES, a drift, in place of drawn cases",
    )
    parser.add_argument("--policy", default="marginal")
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    arguments = parser.parse_args()
    if arguments.cases < 1:
        parser.error(f"--cases {arguments.cases}: must be at least 1")
    subjects = subjects_of(arguments.seed)
    nodes = {name: most_nodes(subject) for name, subject in subjects.items()}
    try:
        named = [
            named_case(text, number, arguments.seed)
            for number, text in enumerate(arguments.case or ())
        ]
    except ValueError as error:
        parser.error(f"--case {error}")
    if unknown := {case.subject for case in named} - subjects.keys():
        parser.error(f"--case: no subject {', '.join(unknown)}; there are {', '.join(subjects)}")
    cases = named or draw_cases(nodes, arguments.cases, arguments.seed)
    with ProcessPoolExecutor(arguments.workers) as workers:
        runs = workers.map(partial(run_case, subjects, arguments.policy), cases)
        bar = track(runs, "first runs", len(cases), console=Console(stderr=True))
        results = list(bar)
    if arguments.json:
        print(json.dumps(summary(arguments.seed, results), indent=1))
    else:
        print_summary(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
