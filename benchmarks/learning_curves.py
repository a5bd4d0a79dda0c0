"""Coverage and sharpness of forecasts of learning curves.

    CASTOR_DATA=... python benchmarks/learning_curves.py [--seeds 2] [--plot FILE]

Curves: four tasks of LCBench (by YAHPO's surrogate) with and without noise of half a point in each
report, the validation metrics that Pollux's authors measured, and synthetic curves with typical
failures. Only the tasks in `DEVELOPMENT` were used to develop the model. A trial is forecast after
a few reports, alone and with siblings that went to the end, that successive halving pruned, or
that run at the same time. Forecasts are for three times as many reports and for the last report.
CRPS (Gneiting & Raftery 2007, less is better) and widths are in % of the range of nine tenths of a
set's values. CASTOR_DATA must name the folder that holds hpo and pollux. Prints Markdown.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data_folder import data_folder
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from autoscaler.policies.published.learning_curves.forecast import DRAWS, Curve, Study, forecast

FloatArray = NDArray[np.float64]
DEVELOPMENT = ("3945", "189906")
NOISE = 0.5
REPORTS = (1, 3, 9, 27)
SIBLINGS = (0, 1, 3, 10, 40)
TARGETS = 4
MADE = 80
ODD = 20
SHOWN = ("LCBench 126026", "LCBench 167200", "Pollux imagenet", "Pollux yolov3")
# Successive halving: reports at which one trial in three continues.
RUNGS = (1, 3, 9, 27)
POWERS = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])


@dataclass(frozen=True)
class Set:
    """Whole curves of one study.

    `targets` are the indices of the curves to forecast; None for all.
    """

    name: str
    group: str
    maximize: bool
    progress: Sequence[FloatArray]
    values: Sequence[FloatArray]
    targets: Sequence[int] | None = None
    best: float | None = None

    @property
    def unit(self) -> float:
        """Range of nine tenths of all values."""
        values = np.concatenate(self.values)
        low, high = np.quantile(values[np.isfinite(values)], [0.05, 0.95])
        return float(high - low)


@dataclass(frozen=True)
class Case:
    """Question to forecast: a trial, its siblings with their reports so far, and the horizons."""

    curves: Set
    known: Sequence[Curve]
    trial: Curve
    horizons: FloatArray
    truth: FloatArray
    reports: int
    siblings: str
    situation: str


@dataclass(frozen=True)
class Row:
    """Score of one forecast of one value."""

    case: Case
    held: bool
    width: float
    crps: float
    baselines: tuple[float, float, float]


def lcbench(data: Path, noise: float, seed: int, best: float | None = None) -> Iterator[Set]:
    """Yield 256 configurations of each task, with noise in the reports."""
    surrogate = np.load(data / "hpo" / "lcbench-surrogate.npz")
    generator = np.random.default_rng(seed)
    for task, accuracy in zip(
        surrogate["openml_task"], surrogate["validation_accuracy"], strict=True
    ):
        values = accuracy.astype(np.float64)
        values += noise * generator.standard_normal(values.shape)
        role = "development" if task in DEVELOPMENT else "held out"
        kind = f"LCBench {task}" + ("" if noise else ", no noise")
        if best is not None:
            kind, role = f"{kind}, best known", f"{role}, best known"
        progress = np.arange(1.0, values.shape[1] + 1.0)
        yield Set(kind, role, True, [progress] * len(values), list(values), best=best)


def pollux(data: Path) -> Iterator[Set]:
    """Yield one curve for each batch size; accuracies and scores are maximised."""
    for folder in sorted((data / "pollux" / "app-profiles").iterdir()):
        progress, values = [], []
        for file in sorted(folder.glob("validation-*.csv")):
            with file.open() as lines:
                rows = [
                    (float(row["progress"]), float(row["metric"])) for row in csv.DictReader(lines)
                ]
            progress.append(np.array([row[0] for row in rows]))
            values.append(np.array([row[1] for row in rows]))
        maximize = folder.name not in ("deepspeech2", "yolov3")
        yield Set(f"Pollux {folder.name}", "held out", maximize, progress, values)


def made(seed: int) -> Iterator[Set]:
    """Yield synthetic losses of which a quarter is unusual, and the same for these alone."""
    progress = np.arange(1.0, 41.0)
    share = progress / progress[-1]

    def flat(generator: np.random.Generator) -> FloatArray:
        """Return a constant loss."""
        return np.full(40, generator.uniform(2.0, 2.4))

    def overfit(generator: np.random.Generator) -> FloatArray:
        """Return a loss that falls and then rises."""
        best, fall = generator.uniform(0.3, 0.8), generator.uniform(0.3, 2.0)
        return best + 2.0 * progress**-1.0 + fall * share**2

    def late_step(generator: np.random.Generator) -> FloatArray:
        """Return a loss that drops at a late step."""
        return usual(generator) + np.where(share < generator.uniform(0.3, 0.7), 0.6, 0.0)

    def exploding(generator: np.random.Generator) -> FloatArray:
        """Return a loss that grows exponentially."""
        values: FloatArray = usual(generator) * np.exp(progress * generator.uniform(0.05, 0.5))
        return values

    def gaps(generator: np.random.Generator) -> FloatArray:
        """Return a loss of which a third of the reports is NaN."""
        return np.where(generator.random(40) < 0.3, np.nan, usual(generator))

    kinds: dict[str, Callable[[np.random.Generator], FloatArray]] = {
        "flat": flat,
        "falls, then rises": overfit,
        "late step": late_step,
        "explodes": exploding,
        "a third is NaN": gaps,
    }
    for name, kind in kinds.items():
        generator = np.random.default_rng(seed)
        rows = [kind(generator) for _ in range(ODD)]
        rows += [usual(generator) for _ in range(MADE - ODD)]
        values = [row + 0.02 * generator.standard_normal(40) for row in rows]
        whole = [progress] * MADE
        yield Set(f"a quarter: {name}", "made", False, whole, values)
        yield Set(f"only these: {name}", "made, the odd ones", False, whole, values, range(ODD))


def usual(generator: np.random.Generator) -> FloatArray:
    """Return 40 reports of a loss that falls by a power law."""
    best, fall = generator.uniform(0.3, 0.8), generator.uniform(1.0, 2.0)
    power: FloatArray = best + fall * np.arange(1.0, 41.0) ** -generator.uniform(0.4, 1.2)
    return power


def cases(curves: Set, seed: int) -> Iterator[Case]:
    """Yield a few trials for each number of reports, number of siblings and situation."""
    generator = np.random.default_rng(seed)
    all_trials = np.arange(len(curves.values))
    for siblings in SIBLINGS:
        situations = ("all the way", "pruned", "running") if siblings else ("alone",)
        for situation in situations if siblings < len(all_trials) else ():
            for reports in REPORTS:
                targets = curves.targets if curves.targets is not None else all_trials
                for target in generator.permutation(targets)[:TARGETS]:
                    others = generator.permutation(all_trials[all_trials != target])[:siblings]
                    case = _case(curves, int(target), others, (situation, reports), generator)
                    if case is not None:
                        yield case


def _case(
    curves: Set,
    target: int,
    others: NDArray[np.intp],
    situation_and_reports: tuple[str, int],
    generator: np.random.Generator,
) -> Case | None:
    """Return the case of one trial; None if it has no finite value to forecast."""
    situation, reports = situation_and_reports
    progress, values = curves.progress[target], curves.values[target]
    later_indices = [min(3 * reports, len(values)) - 1, len(values) - 1]
    later_indices = [
        index for index in later_indices if index >= reports and np.isfinite(values[index])
    ]
    if not later_indices or not np.isfinite(values[reports - 1]):
        return None
    report_counts = [len(curves.values[other]) for other in others]
    if situation == "running":
        report_counts = [int(generator.integers(1, reports + 1)) for _ in others]
    if situation == "pruned":
        report_counts = _pruned(curves, others)
    sibling_curves = [
        Curve(curves.progress[other][:count], curves.values[other][:count])
        for other, count in zip(others, report_counts, strict=True)
    ]
    trial = Curve(progress[:reports], values[:reports])
    return Case(
        curves,
        sibling_curves,
        trial,
        progress[later_indices],
        values[later_indices],
        reports,
        str(len(others)),
        situation,
    )


def _pruned(curves: Set, others: NDArray[np.intp]) -> list[int]:
    """Return the reports of each sibling when successive halving ends."""
    report_counts = {int(other): len(curves.values[other]) for other in others}
    alive = [int(other) for other in others]
    for rung in RUNGS:
        value = {other: curves.values[other][: rung + 1][-1] for other in alive}
        sign = -1.0 if curves.maximize else 1.0
        alive.sort(key=lambda other: np.nan_to_num(sign * value[other], nan=np.inf))
        kept_count = max(-(-len(alive) // 3), 1)
        report_counts.update(
            {other: min(rung, report_counts[other]) for other in alive[kept_count:]}
        )
        alive = alive[:kept_count]
    return [report_counts[int(other)] for other in others]


def judged(case: Case) -> Iterator[Row]:
    """Yield the score of each value's forecast, beside those of simpler forecasts."""
    study = Study([*case.known, case.trial], case.curves.maximize, case.curves.best)
    draws = forecast(study, [len(case.known)], case.horizons)
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    unit = case.curves.unit
    for index, (horizon, truth) in enumerate(zip(case.horizons, case.truth, strict=True)):
        baselines = (last_value(case), like_siblings(case, horizon), power_law(case, horizon))
        yield Row(
            case,
            bool(low[0, index] <= truth <= high[0, index]),
            float(high[0, index] - low[0, index]) / unit,
            crps(draws[0, :, index], truth) / unit,
            (
                crps(baselines[0], truth) / unit,
                crps(baselines[1], truth) / unit,
                crps(baselines[2], truth) / unit,
            ),
        )


def crps(draws: FloatArray, truth: float) -> float:
    """Return the continuous ranked probability score; of one value, the absolute error."""
    ordered = np.sort(draws)
    rank = 2.0 * np.arange(1, len(ordered) + 1) - len(ordered) - 1.0
    return float(np.abs(ordered - truth).mean() - (rank * ordered).sum() / len(ordered) ** 2)


def last_value(case: Case) -> FloatArray:
    """Return the last reported value as the only draw."""
    return case.trial.finite[1][-1:]


def like_siblings(case: Case, horizon: float) -> FloatArray:
    """Return the last value plus the change of each sibling that is near the horizon."""
    last_progress = float(case.trial.progress[-1])
    changes = [
        np.interp(horizon, *sibling.finite) - np.interp(last_progress, *sibling.finite)
        for sibling in case.known
        if len(sibling.finite[0]) and sibling.finite[0][-1] >= 0.95 * horizon
    ]
    last = last_value(case)
    return last + np.array(changes) if changes else last


def power_law(case: Case, horizon: float) -> FloatArray:
    """Return draws of ``a + b progress^-c`` by least squares, with the fit's normal errors."""
    progress, values = case.trial.finite
    if len(values) < 3:
        return last_value(case)
    fits = []
    for power in POWERS:
        rows = np.stack([np.ones_like(progress), (progress / progress[0]) ** -power], axis=1)
        factors = np.linalg.lstsq(rows, values, rcond=None)[0]
        error = float(((rows @ factors - values) ** 2).sum())
        fits.append((error, float(factors @ [1.0, (horizon / progress[0]) ** -power])))
    error, value = min(fits)
    normal = np.random.default_rng(0).standard_normal(DRAWS)
    deviation: FloatArray = np.sqrt(error / max(len(values) - 3, 1)) * normal
    return value + deviation


def table(title: str, rows: Sequence[Row], key: Callable[[Row], str]) -> None:
    """Print one line for each value of the key."""
    print(
        f"\n| {title} | forecasts | 90 % band held | width | CRPS "
        "| last value | like siblings | power law |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(map(key, rows)):
        group = [row for row in rows if key(row) == name]
        held_percent = 100.0 * np.mean([row.held for row in group])
        width = 100.0 * np.median([row.width for row in group])
        scores = 100.0 * np.array([[row.crps, *row.baselines] for row in group]).mean(axis=0)
        cells = " | ".join(f"{score:.3g}" for score in scores)
        print(f"| {name} | {len(group)} | {held_percent:.0f} % | {width:.3g} | {cells} |")


def situations(rows: Sequence[Row]) -> None:
    """Print the fraction of bands that held, by set and situation of the siblings."""
    names = list(dict.fromkeys(row.case.situation for row in rows))
    print("\n| 90 % band held, by siblings | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for curves in dict.fromkeys(row.case.curves.name for row in rows):
        set_rows = [row for row in rows if row.case.curves.name == curves]
        shares = [
            np.mean([row.held for row in set_rows if row.case.situation == name]) for name in names
        ]
        print(f"| {curves} | " + " | ".join(f"{100.0 * share:.0f} %" for share in shares) + " |")


def picture(data: Path, file: Path) -> None:
    """Draw the bands of some trials after three and after nine reports, with their curves."""
    sets = [*lcbench(data, NOISE, 0), *pollux(data)]
    shown = [curves for curves in sets if curves.name in SHOWN]
    figure = Figure(figsize=(4.0 * len(shown), 6.0), layout="constrained")
    for column, curves in enumerate(shown):
        for row, reports in enumerate((3, 9)):
            axes = figure.add_subplot(2, len(shown), row * len(shown) + column + 1)
            _panel(axes, curves, reports)
    figure.savefig(file, dpi=70)


def _panel(axes: Axes, curves: Set, reports: int) -> None:
    """Draw three trials with siblings that went to the end."""
    siblings = [
        Curve(*course) for course in zip(curves.progress[3:23], curves.values[3:23], strict=True)
    ]
    for sibling in siblings:
        axes.plot(sibling.progress, sibling.values, color="0.85", linewidth=0.6)
    running = [
        Curve(curves.progress[trial][:reports], curves.values[trial][:reports])
        for trial in range(3)
    ]
    study = Study([*running, *siblings], curves.maximize)
    for trial, color in enumerate(("C0", "C1", "C2")):
        progress, values = curves.progress[trial], curves.values[trial]
        draws = forecast(study, [trial], progress[reports - 1 :])
        low, high = np.quantile(draws, [0.05, 0.95], axis=1)
        axes.fill_between(progress[reports - 1 :], low[0], high[0], color=color, alpha=0.25, lw=0)
        axes.plot(progress, values, color=color, linewidth=0.8)
        axes.plot(progress[:reports], values[:reports], ".", color=color)
    axes.set_xscale("log")
    axes.set_title(f"{curves.name}, {reports} reports", fontsize=9)


def seconds_of_many() -> float:
    """Return the processor seconds to forecast 200 trials of 50 reports at two horizons."""
    generator = np.random.default_rng(0)
    progress = np.arange(1.0, 51.0)
    rows = (np.interp(progress, np.arange(1.0, 41.0), usual(generator)) for _ in range(200))
    study = Study([Curve(progress, row) for row in rows], maximize=False)
    seconds = []
    for _ in range(5):
        began = time.process_time()
        forecast(study, range(200), [75.0, 100.0])
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="only draw some forecasts, to this file")
    options = parser.parse_args()
    data = data_folder("hpo and pollux")
    if options.plot is not None:
        picture(data, options.plot)
        return
    seeds = range(options.seeds)
    rows = []
    for seed in seeds:
        sets = [*lcbench(data, NOISE, seed), *lcbench(data, 0.0, seed), *pollux(data), *made(seed)]
        sets += lcbench(data, NOISE, seed, best=100.0)
        rows += [row for curves in sets for case in cases(curves, seed) for row in judged(case)]
    table("curves", rows, lambda row: f"{row.case.curves.group}: {row.case.curves.name}")
    for group in dict.fromkeys(row.case.curves.group for row in rows):
        group_rows = [row for row in rows if row.case.curves.group == group]
        table(f"{group}, all", group_rows, lambda row: "")
        table(f"{group}, reports so far", group_rows, lambda row: str(row.case.reports))
        table(f"{group}, siblings", group_rows, lambda row: row.case.siblings)
        table(f"{group}, siblings went", group_rows, lambda row: row.case.situation)
    situations(rows)
    print(f"\n200 trials of 50 reports: {1000.0 * seconds_of_many():.0f} ms of one core")


if __name__ == "__main__":
    main()
