"""Whether the chance that `castor study plan` gives is the share of studies in time.

    CASTOR_DATA=... python benchmarks/study_chances.py [--seed 400] [--every 2] [--runs 8]

The cases of `study_controller.py`. What `castor study plan` would know of a case are the paces of
`PILOTS` earlier trials of the study, measured on all sizes. It draws studies from these and runs
each under the controller's policy; the share in time is the chance. Then the case itself is run.
Deadlines are multiples of the fastest there can be. Prints Markdown: chances in bins, beside how
many of the studies with such a chance were in time.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
from data_folder import data_folder
from study_cases import DEVICES, RUNG_ENDS, RUNG_TRIALS, Market, read_source
from study_controller import OURS, Subject, bought, elastic, run, subjects
from study_rungs import fastest_seconds

from autoscaler.domain.objective import Objective
from autoscaler.simulator.studies.drawn_trials import (
    Pace,
    drawn_curves,
    measured_doubling,
    speedups,
)
from autoscaler.simulator.studies.study import (
    BatchOfTrials,
    SimulatedStudy,
    application_of,
    trials_of,
)

MULTIPLES = (1.1, 1.25, 1.5, 2.0, 3.0)
BINS = (0.0, 0.2, 0.5, 0.8, 1.0)


def drawn(subject: Subject, deadline_seconds: float, seed: int) -> SimulatedStudy:
    """A study as it may be, by what is known of earlier trials."""
    pilots = subject.case.pilots
    rates = [dict(zip(DEVICES, pilot.tolist(), strict=True)) for pilot in pilots]
    known = [{n: rate for n, rate in each.items() if rate > 0} for each in rates]
    paces = tuple((1.0 / pilots[:, 0]).tolist())
    pace = Pace(float(np.median(paces)), paces)
    curves = drawn_curves(RUNG_TRIALS[0], RUNG_ENDS[-1], RUNG_ENDS, pace, seed)
    speedup = speedups(max(DEVICES), measured_doubling(known) or 1.0)
    application = application_of("trial", speedup, [subject.kind])
    return replace(
        subject.study,
        trials=trials_of(curves, application, BatchOfTrials(), subject.kind),
        objective=Objective(deadline_seconds=deadline_seconds),
        features=(),
    )


def chance(subject: Subject, deadline_seconds: float, runs: int) -> float:
    """The share of the drawn studies that are in time."""
    kept = []
    for seed in range(runs):
        study = drawn(subject, deadline_seconds, seed)
        result = run(subject, elastic(subject), OURS, study).study
        assert result is not None
        kept.append(result.finished_s <= deadline_seconds)
    return float(np.mean(kept))


def print_table(found: list[tuple[float, float, bool]]) -> None:
    """Print how many were in time, by multiple and by chance."""
    multiples, chances, kept = (np.array(column) for column in zip(*found, strict=True))
    print("| deadline, of the fastest there can be | mean chance | in time |\n|---|---|---|")
    for multiple in np.unique(multiples):
        own = multiples == multiple
        print(f"| {multiple:g} x | {chances[own].mean():.0%} | {kept[own].sum()} of {own.sum()} |")
    print("\n| chance | studies | mean chance | in time |\n|---|---|---|---|")
    for low, high in pairwise(BINS):
        own = (chances >= low) & ((chances < high) | (high == BINS[-1]))
        if own.any():
            share = f"{kept[own].mean():.0%} ({kept[own].sum()} of {own.sum()})"
            mean = chances[own].mean()
            print(f"| {low:.0%} to {high:.0%} | {own.sum()} | {mean:.0%} | {share} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=400)
    parser.add_argument("--every", type=int, default=2, help="Of the 20 cases every so many.")
    parser.add_argument("--runs", type=int, default=8)
    options = parser.parse_args()
    source = read_source(data_folder("hpo and pollux/app-profiles"))
    found = []
    for subject in subjects(source, Market(), options.seed)[:: options.every]:
        for multiple in MULTIPLES:
            deadline = fastest_seconds(subject.case) * multiple
            expected = chance(subject, deadline, options.runs)
            kept = bought(subject, OURS, deadline).in_time
            found.append((multiple, expected, kept))
            print(subject.case.name, multiple, expected, kept, file=sys.stderr, flush=True)
    print_table(found)


if __name__ == "__main__":
    main()
