"""Whether forecasts of learning curves hold as many reports as they say, and how sharp they are.

    CASTOR_DATA=... python benchmarks/learning_curves.py [--seeds 2] [--plot FILE]

Curves: four tasks of LCBench (by YAHPO's surrogate) with and without noise of half a point in each
report, the validation metrics that Pollux's authors measured, and made-up ones of the kinds that
go wrong. Only the tasks in `DEVELOPMENT` were looked at in making the model. A trial is forecast
after a few reports, by itself and with siblings that went all the way, that were pruned by
successive halving, or that run beside it and know no more than it does; for three times as many
reports and for the last. CRPS (Gneiting & Raftery 2007, less is better) and widths are in % of
the range of nine tenths of a set's values. CASTOR_DATA must name the folder that holds hpo
and pollux. Prints Markdown.
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

from autoscaler.policies.learning_curves.forecast import DRAWS, Curve, Study, forecast

FloatArray = NDArray[np.float64]
DEVELOPMENT = ("3945", "189906")
NOISE = 0.5
REPORTS = (1, 3, 9, 27)
SIBLINGS = (0, 1, 3, 10, 40)
TARGETS = 4
MADE = 80
ODD = 20
SHOWN = ("LCBench 126026", "LCBench 167200", "Pollux imagenet", "Pollux yolov3")
# Successive halving: one in three goes on, after so many reports.
RUNGS = (1, 3, 9, 27)
POWERS = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])


@dataclass(frozen=True)
class Set:
    """Whole curves of one study; `targets` are those that are forecast, all if None."""

    name: str
    group: str
    maximize: bool
    progress: Sequence[FloatArray]
    values: Sequence[FloatArray]
    targets: Sequence[int] | None = None
    best: float | None = None

    @property
    def unit(self) -> float:
        """The range of nine tenths of all values."""
        values = np.concatenate(self.values)
        low, high = np.quantile(values[np.isfinite(values)], [0.05, 0.95])
        return float(high - low)


@dataclass(frozen=True)
class Case:
    """A trial, the siblings that are known, each with how many reports, and what is asked."""

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
    """One forecast of one value."""

    case: Case
    held: bool
    width: float
    crps: float
    baselines: tuple[float, float, float]


def lcbench(data: Path, noise: float, seed: int, best: float | None = None) -> Iterator[Set]:
    """256 configurations of each task."""
    held = np.load(data / "hpo" / "lcbench-surrogate.npz")
    generator = np.random.default_rng(seed)
    for task, accuracy in zip(held["openml_task"], held["validation_accuracy"], strict=True):
        values = accuracy.astype(np.float64)
        values += noise * generator.standard_normal(values.shape)
        role = "development" if task in DEVELOPMENT else "held out"
        kind = f"LCBench {task}" + ("" if noise else ", no noise")
        if best is not None:
            kind, role = f"{kind}, best known", f"{role}, best known"
        progress = np.arange(1.0, values.shape[1] + 1.0)
        yield Set(kind, role, True, [progress] * len(values), list(values), best=best)


def pollux(data: Path) -> Iterator[Set]:
    """One curve for each batch size; for accuracies and scores more is better."""
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
    """Losses of which a quarter do not go as one expects: all are forecast, and those alone."""
    progress = np.arange(1.0, 41.0)
    share = progress / progress[-1]

    def flat(generator: np.random.Generator) -> FloatArray:
        return np.full(40, generator.uniform(2.0, 2.4))

    def overfit(generator: np.random.Generator) -> FloatArray:
        best, fall = generator.uniform(0.3, 0.8), generator.uniform(0.3, 2.0)
        return best + 2.0 * progress**-1.0 + fall * share**2

    def late_step(generator: np.random.Generator) -> FloatArray:
        return usual(generator) + np.where(share < generator.uniform(0.3, 0.7), 0.6, 0.0)

    def exploding(generator: np.random.Generator) -> FloatArray:
        values: FloatArray = usual(generator) * np.exp(progress * generator.uniform(0.05, 0.5))
        return values

    def gaps(generator: np.random.Generator) -> FloatArray:
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
    """A loss that falls by a power law, 40 reports."""
    best, fall = generator.uniform(0.3, 0.8), generator.uniform(1.0, 2.0)
    power: FloatArray = best + fall * np.arange(1.0, 41.0) ** -generator.uniform(0.4, 1.2)
    return power


def cases(curves: Set, seed: int) -> Iterator[Case]:
    """Every number of reports and siblings in every situation, a few trials of each."""
    generator = np.random.default_rng(seed)
    everyone = np.arange(len(curves.values))
    for siblings in SIBLINGS:
        situations = ("all the way", "pruned", "running") if siblings else ("alone",)
        for situation in situations if siblings < len(everyone) else ():
            for reports in REPORTS:
                targets = curves.targets if curves.targets is not None else everyone
                for target in generator.permutation(targets)[:TARGETS]:
                    others = generator.permutation(everyone[everyone != target])[:siblings]
                    case = _case(curves, int(target), others, (situation, reports), generator)
                    if case is not None:
                        yield case


def _case(
    curves: Set,
    target: int,
    others: NDArray[np.intp],
    where: tuple[str, int],
    generator: np.random.Generator,
) -> Case | None:
    situation, reports = where
    progress, values = curves.progress[target], curves.values[target]
    later = [min(3 * reports, len(values)) - 1, len(values) - 1]
    later = [place for place in later if place >= reports and np.isfinite(values[place])]
    if not later or not np.isfinite(values[reports - 1]):
        return None
    went = [len(curves.values[other]) for other in others]
    if situation == "running":
        went = [int(generator.integers(1, reports + 1)) for _ in others]
    if situation == "pruned":
        went = _pruned(curves, others)
    known = [
        Curve(curves.progress[other][:count], curves.values[other][:count])
        for other, count in zip(others, went, strict=True)
    ]
    trial = Curve(progress[:reports], values[:reports])
    return Case(
        curves, known, trial, progress[later], values[later], reports, str(len(others)), situation
    )


def _pruned(curves: Set, others: NDArray[np.intp]) -> list[int]:
    """How many reports each has when successive halving is done with them."""
    went = {int(other): len(curves.values[other]) for other in others}
    alive = [int(other) for other in others]
    for rung in RUNGS:
        value = {other: curves.values[other][: rung + 1][-1] for other in alive}
        sign = -1.0 if curves.maximize else 1.0
        alive.sort(key=lambda other: np.nan_to_num(sign * value[other], nan=np.inf))
        kept = max(-(-len(alive) // 3), 1)
        went.update({other: min(rung, went[other]) for other in alive[kept:]})
        alive = alive[:kept]
    return [went[int(other)] for other in others]


def judged(case: Case) -> Iterator[Row]:
    """The forecast of each value, beside those of simpler ones."""
    study = Study([*case.known, case.trial], case.curves.maximize, case.curves.best)
    found = forecast(study, [len(case.known)], case.horizons)
    low, high = found.band(0.9)
    unit = case.curves.unit
    for place, (horizon, truth) in enumerate(zip(case.horizons, case.truth, strict=True)):
        simple = (last_value(case), like_siblings(case, horizon), power_law(case, horizon))
        yield Row(
            case,
            bool(low[0, place] <= truth <= high[0, place]),
            float(high[0, place] - low[0, place]) / unit,
            crps(found.draws[0, :, place], truth) / unit,
            (
                crps(simple[0], truth) / unit,
                crps(simple[1], truth) / unit,
                crps(simple[2], truth) / unit,
            ),
        )


def crps(draws: FloatArray, truth: float) -> float:
    """Continuous ranked probability score of equally likely values; of one, the absolute error."""
    ordered = np.sort(draws)
    rank = 2.0 * np.arange(1, len(ordered) + 1) - len(ordered) - 1.0
    return float(np.abs(ordered - truth).mean() - (rank * ordered).sum() / len(ordered) ** 2)


def last_value(case: Case) -> FloatArray:
    """What was reported last."""
    return case.trial.finite[1][-1:]


def like_siblings(case: Case, horizon: float) -> FloatArray:
    """The last value, and then what changed for each of the siblings that have been there."""
    here = float(case.trial.progress[-1])
    changes = [
        np.interp(horizon, *sibling.finite) - np.interp(here, *sibling.finite)
        for sibling in case.known
        if len(sibling.finite[0]) and sibling.finite[0][-1] >= 0.95 * horizon
    ]
    last = last_value(case)
    return last + np.array(changes) if changes else last


def power_law(case: Case, horizon: float) -> FloatArray:
    """``a + b progress^-c`` by least squares, with normal errors as large as those of the fit."""
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
        found = [row for row in rows if key(row) == name]
        held = 100.0 * np.mean([row.held for row in found])
        width = 100.0 * np.median([row.width for row in found])
        scores = 100.0 * np.array([[row.crps, *row.baselines] for row in found]).mean(axis=0)
        said = " | ".join(f"{score:.3g}" for score in scores)
        print(f"| {name} | {len(found)} | {held:.0f} % | {width:.3g} | {said} |")


def situations(rows: Sequence[Row]) -> None:
    """Print how many bands held, for each set by what its siblings did."""
    names = list(dict.fromkeys(row.case.situation for row in rows))
    print("\n| 90 % band held, by siblings | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for curves in dict.fromkeys(row.case.curves.name for row in rows):
        some = [row for row in rows if row.case.curves.name == curves]
        shares = [np.mean([row.held for row in some if row.case.situation == n]) for n in names]
        print(f"| {curves} | " + " | ".join(f"{100.0 * share:.0f} %" for share in shares) + " |")


def picture(data: Path, file: Path) -> None:
    """Draw bands of some trials after three and after nine reports, beside what came."""
    sets = [*lcbench(data, NOISE, 0), *pollux(data)]
    shown = [curves for curves in sets if curves.name in SHOWN]
    figure = Figure(figsize=(4.0 * len(shown), 6.0), layout="constrained")
    for column, curves in enumerate(shown):
        for row, reports in enumerate((3, 9)):
            axes = figure.add_subplot(2, len(shown), row * len(shown) + column + 1)
            _panel(axes, curves, reports)
    figure.savefig(file, dpi=70)


def _panel(axes: Axes, curves: Set, reports: int) -> None:
    """Three trials among siblings that went all the way."""
    siblings = [
        Curve(*course) for course in zip(curves.progress[3:23], curves.values[3:23], strict=True)
    ]
    for sibling in siblings:
        axes.plot(sibling.progress, sibling.values, color="0.85", linewidth=0.6)
    running = [Curve(curves.progress[k][:reports], curves.values[k][:reports]) for k in range(3)]
    study = Study([*running, *siblings], curves.maximize)
    for trial, color in enumerate(("C0", "C1", "C2")):
        progress, values = curves.progress[trial], curves.values[trial]
        found = forecast(study, [trial], progress[reports - 1 :])
        low, high = found.band()
        axes.fill_between(progress[reports - 1 :], low[0], high[0], color=color, alpha=0.25, lw=0)
        axes.plot(progress, values, color=color, linewidth=0.8)
        axes.plot(progress[:reports], values[:reports], ".", color=color)
    axes.set_xscale("log")
    axes.set_title(f"{curves.name}, {reports} reports", fontsize=9)


def seconds_of_many() -> float:
    """Processor time of forecasting 200 trials of 50 reports each, two horizons."""
    generator = np.random.default_rng(0)
    progress = np.arange(1.0, 51.0)
    rows = (np.interp(progress, np.arange(1.0, 41.0), usual(generator)) for _ in range(200))
    study = Study([Curve(progress, row) for row in rows], maximize=False)
    taken = []
    for _ in range(5):
        began = time.process_time()
        forecast(study, range(200), [75.0, 100.0])
        taken.append(time.process_time() - began)
    return min(taken)


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="only draw some of them, to this file")
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
        some = [row for row in rows if row.case.curves.group == group]
        table(f"{group}, all", some, lambda row: "")
        table(f"{group}, reports so far", some, lambda row: str(row.case.reports))
        table(f"{group}, siblings", some, lambda row: row.case.siblings)
        table(f"{group}, siblings went", some, lambda row: row.case.situation)
    situations(rows)
    print(f"\n200 trials of 50 reports: {1000.0 * seconds_of_many():.0f} ms of one core")


if __name__ == "__main__":
    main()
