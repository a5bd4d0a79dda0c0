"""How well the throughput model predicts measured step times it has not seen.

Measured are the application profiles published with Pollux (OSDI'21) on nodes of 4 T4 devices,
and with Sia (SOSP'23) on nodes of 8 A100 and of 8 2080 Ti: CASTOR_DATA must name the folder that
holds pollux/app-profiles and hetero. Prints Markdown.

    CASTOR_DATA=... python benchmarks/goodput_profiles.py
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.likelihood import measurements
from autoscaler.goodput.prediction import log_errors, size_log_errors
from autoscaler.goodput.prior import ThroughputPrior, prior_for, prior_from_kind
from autoscaler.goodput.throughput import FloatArray

KIND = "t4"
NETWORK_BYTES_PER_SECOND = 6.25e9
# Single precision parameters of the published models, as far as the profiles name them.
PARAMETER_BYTES = {
    "bert": 440_000_000,
    "cifar10": 45_000_000,
    "deepspeech2": 150_000_000,
    "imagenet": 102_000_000,
    "ncf": 126_000_000,
    "yolov3": 248_000_000,
}
FOLDS = 5
STEPS = 100


@dataclass(frozen=True)
class OtherKind:
    """Another kind of device: its speed over a T4's by arithmetic and memory, its network."""

    name: str
    speed_ratio: float
    network_bytes_per_second: float


OTHER_KINDS = (OtherKind("dgx-ext", 4.85, 50e9), OtherKind("rtx", 1.8, 6.25e9))


@dataclass(frozen=True)
class Score:
    """Relative errors of predicted step times, and the share of 90 % intervals that held."""

    median: float
    ninth_decile: float
    bias: float
    coverage: float


@dataclass(frozen=True)
class Profile:
    """One application: `placements` (up to 16 devices) and the fold of each, `larger` (to 64)."""

    placements: list[StepObservation]
    folds: list[int]
    larger: list[StepObservation]


def read_profile(folder: Path) -> Profile:
    """Read one application. What digit a node has in a placement is ignored, their number not."""
    rows = _rows(folder / "placements.csv")
    names = sorted({row["placement"] for row in rows})
    order = np.random.default_rng(0).permutation(len(names))
    fold = {names[place]: number % FOLDS for number, place in enumerate(order)}
    return Profile(
        placements=[_placed(row) for row in rows],
        folds=[fold[row["placement"]] for row in rows],
        larger=[
            _observation(row, int(row["num_nodes"]), int(row["num_replicas"]))
            for row in _rows(folder / "scalability.csv")
        ],
    )


def held_out_placements(profile: Profile, prior: ThroughputPrior) -> Score:
    """Each placement predicted by a model fitted to the other folds."""
    parts = []
    for fold in range(FOLDS):
        pairs = list(zip(profile.placements, profile.folds, strict=True))
        model = fit([o for o, of in pairs if of != fold], prior)
        parts.append(_errors(model, [o for o, of in pairs if of == fold]))
    return _score(parts)


def larger_sizes(profile: Profile, prior: ThroughputPrior, most: int, predicted: range) -> Score:
    """Sizes whose devices are in `predicted`, from the placements on at most `most` devices."""
    model = fit([o for o in profile.placements if o.devices <= most], prior)
    everything = profile.placements + profile.larger
    return _score([_errors(model, [o for o in everything if o.devices in predicted])])


def another_kind(
    observations: Sequence[StepObservation], prior: ThroughputPrior, measured: int
) -> Score:
    """Sizes of more than one device, from what was measured on at most `measured` devices."""
    few = [o for o in observations if o.devices <= measured]
    return _score([_errors(fit(few, prior), [o for o in observations if o.devices > 1])])


@contextmanager
def published_growth() -> Iterator[None]:
    """Let synchronisation grow with each device, as in Pollux, instead of each doubling."""

    def per_device(devices: FloatArray) -> FloatArray:
        # The prior of growth is of a doubling; that of a device is a tenth of it.
        return np.maximum(devices - 2.0, 0.0) / 10.0

    with ExitStack() as stack:
        for module in ("throughput", "formulas"):
            stack.enter_context(
                mock.patch(f"autoscaler.goodput.{module}.doublings_of", per_device)
            )
        yield


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _placed(row: dict[str, str], kind: str = KIND) -> StepObservation:
    devices = [int(digit) for digit in row["placement"]]
    return _observation(row, len(devices), sum(devices), kind)


def _observation(
    row: dict[str, str], instances: int, devices: int, kind: str = KIND
) -> StepObservation:
    batch, step, sync = int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
    return StepObservation(kind, instances, devices, batch, 0, step, sync, steps=STEPS)


def _errors(model: ThroughputModel, held_out: Sequence[StepObservation]) -> FloatArray:
    """Log errors and whether the interval held, (2, n)."""
    drawn = predictor_of(model.draws)
    instances, devices, batch, accumulation = measurements(held_out, drawn.formula).places
    seconds = drawn.step_seconds(instances, devices, batch, accumulation)
    draws = np.log(seconds) + size_log_errors(model, instances, devices)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    measured = np.log([o.step_seconds for o in held_out])
    return np.stack([log_errors(model, held_out), (low <= measured) & (measured <= high)])


def _score(parts: Sequence[FloatArray]) -> Score:
    errors, held = np.concatenate(parts, axis=1)
    relative = np.abs(np.expm1(-errors))
    return Score(
        median=float(np.median(relative)),
        ninth_decile=float(np.quantile(relative, 0.9)),
        bias=float(np.expm1(-np.median(errors))),
        coverage=float(held.mean()),
    )


def _print_table(columns: Sequence[str], scores: dict[str, list[Score]]) -> None:
    """Median, ninth decile and bias of relative errors; share of 90 % intervals that held."""
    print(f"\n| application | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for application, row in scores.items():
        cells = [
            f"{100 * s.median:.0f}, {100 * s.ninth_decile:.0f}, {100 * s.bias:+.0f}; "
            f"{100 * s.coverage:.0f}"
            for s in row
        ]
        print(f"| {application} | {' | '.join(cells)} |")


def _sizes(data: Path) -> dict[str, list[Score]]:
    """Placements held out, and sizes beyond those fitted, on T4."""
    scores = {}
    few, many = range(5, 17), range(17, 65)
    for name, size in PARAMETER_BYTES.items():
        profile = read_profile(data / "pollux" / "app-profiles" / name)
        prior = prior_for(KIND, size, NETWORK_BYTES_PER_SECOND)
        larger = [larger_sizes(profile, prior, *to) for to in ((4, few), (4, many), (16, many))]
        scores[name] = [held_out_placements(profile, prior), *larger]
    return scores


def _kinds(data: Path, kind: OtherKind) -> dict[str, list[Score]]:
    """More than one device of another kind, with nothing and with one device of it measured."""
    scores = {}
    for name, size in PARAMETER_BYTES.items():
        path = data / "hetero" / name / f"placements-{kind.name}.csv"
        if not path.exists():
            continue
        profile = read_profile(data / "pollux" / "app-profiles" / name)
        known = fit(profile.placements, prior_for(KIND, size, NETWORK_BYTES_PER_SECOND))
        carried = prior_from_kind(known, kind.name, kind.speed_ratio)
        fresh = prior_for(kind.name, size, kind.network_bytes_per_second)
        seen = [_placed(row, kind.name) for row in _rows(path)]
        cases = ((carried, 0), (carried, 1), (fresh, 1))
        scores[name] = [another_kind(seen, prior, measured) for prior, measured in cases]
    return scores


def main() -> None:
    """Print the tables of docs/goodput.md."""
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        sys.exit("CASTOR_DATA is not set: it names the folder with pollux/app-profiles")
    sizes = ("placements held out", "1-4 -> 5-16", "1-4 -> 17-64", "1-16 -> 17-64")
    print("Relative errors of step times in %: median, ninth decile, bias; 90 % intervals held")
    _print_table(sizes, _sizes(Path(data)))
    print("\nThe same with synchronisation that grows with each device, as published")
    with published_growth():
        _print_table(sizes, _sizes(Path(data)))
    priors = ("from T4, 0 measured", "from T4, 1 device measured", "from bytes, 1 device measured")
    for kind in OTHER_KINDS:
        print(f"\nMore than one device of {kind.name}")
        _print_table(priors, _kinds(Path(data), kind))


if __name__ == "__main__":
    main()
