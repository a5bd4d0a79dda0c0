"""Accuracy of the throughput model on measured step times that it has not seen.

The application profiles were published with Pollux (OSDI'21) on nodes of 4 T4 devices, and with
Sia (SOSP'23) on nodes of 8 A100 and of 8 2080 Ti. CASTOR_DATA must name the folder that holds
pollux/app-profiles and hetero. Prints Markdown.

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
# Bytes of the single-precision parameters of the published models that the profiles name.
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
    """Another kind of device: its speed relative to a T4 by arithmetic and memory, its network."""

    name: str
    speed_ratio: float
    network_bytes_per_second: float


OTHER_KINDS = (OtherKind("dgx-ext", 4.85, 50e9), OtherKind("rtx", 1.8, 6.25e9))


@dataclass(frozen=True)
class Score:
    """Relative errors of predicted step times, and the fraction of 90 % intervals that held."""

    median: float
    ninth_decile: float
    bias: float
    coverage: float


@dataclass(frozen=True)
class Profile:
    """Profile of one application.

    Attributes:
        placements: observations on up to 16 devices.
        folds: fold of each placement.
        larger: observations on up to 64 devices.
    """

    placements: list[StepObservation]
    folds: list[int]
    larger: list[StepObservation]


def read_profile(folder: Path) -> Profile:
    """Return the profile of one application.

    Placements that differ only in the order of nodes count as equal.
    """
    rows = _rows(folder / "placements.csv")
    names = sorted({row["placement"] for row in rows})
    fold_order = np.random.default_rng(0).permutation(len(names))
    fold = {names[index]: number % FOLDS for number, index in enumerate(fold_order)}
    return Profile(
        placements=[_placement_observation(row) for row in rows],
        folds=[fold[row["placement"]] for row in rows],
        larger=[
            _observation(row, int(row["num_nodes"]), int(row["num_replicas"]))
            for row in _rows(folder / "scalability.csv")
        ],
    )


def held_out_placements(profile: Profile, prior: ThroughputPrior) -> Score:
    """Return the score of placements, each predicted by a fit to the other folds."""
    parts = []
    for fold in range(FOLDS):
        pairs = list(zip(profile.placements, profile.folds, strict=True))
        model = fit([observation for observation, of_fold in pairs if of_fold != fold], prior)
        parts.append(
            _errors(model, [observation for observation, of_fold in pairs if of_fold == fold])
        )
    return _score(parts)


def larger_sizes(profile: Profile, prior: ThroughputPrior, most: int, predicted: range) -> Score:
    """Return the score of sizes in `predicted`, fitted to placements on up to `most` devices."""
    model = fit(
        [observation for observation in profile.placements if observation.devices <= most], prior
    )
    everything = profile.placements + profile.larger
    return _score(
        [
            _errors(
                model,
                [observation for observation in everything if observation.devices in predicted],
            )
        ]
    )


def another_kind(
    observations: Sequence[StepObservation], prior: ThroughputPrior, measured: int
) -> Score:
    """Return the score of sizes above one device, fitted to those on up to `measured` devices."""
    few = [observation for observation in observations if observation.devices <= measured]
    return _score(
        [
            _errors(
                fit(few, prior),
                [observation for observation in observations if observation.devices > 1],
            )
        ]
    )


@contextmanager
def published_growth() -> Iterator[None]:
    """Let synchronisation time grow by device as in Pollux, instead of by doubling."""

    def per_device(devices: FloatArray) -> FloatArray:
        # The prior of growth is per doubling; growth per device is a tenth of it.
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


def _placement_observation(row: dict[str, str], kind: str = KIND) -> StepObservation:
    devices = [int(digit) for digit in row["placement"]]
    return _observation(row, len(devices), sum(devices), kind)


def _observation(
    row: dict[str, str], instances: int, devices: int, kind: str = KIND
) -> StepObservation:
    batch, step, sync = int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
    return StepObservation(kind, instances, devices, batch, 0, step, sync, steps=STEPS)


def _errors(model: ThroughputModel, held_out: Sequence[StepObservation]) -> FloatArray:
    """Return log errors and whether the interval held, (2, n)."""
    drawn = predictor_of(model.draws)
    instances, devices, batch, accumulation = measurements(held_out, drawn.formula).places
    seconds = drawn.step_seconds(instances, devices, batch, accumulation)
    draws = np.log(seconds) + size_log_errors(model, instances, devices)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    measured = np.log([observation.step_seconds for observation in held_out])
    return np.stack([log_errors(model, held_out), (low <= measured) & (measured <= high)])


def _score(parts: Sequence[FloatArray]) -> Score:
    """Return the score of log errors and held intervals."""
    errors, is_held = np.concatenate(parts, axis=1)
    relative = np.abs(np.expm1(-errors))
    return Score(
        median=float(np.median(relative)),
        ninth_decile=float(np.quantile(relative, 0.9)),
        bias=float(np.expm1(-np.median(errors))),
        coverage=float(is_held.mean()),
    )


def _print_table(columns: Sequence[str], scores: dict[str, list[Score]]) -> None:
    """Print median, ninth decile and bias of relative errors, and the intervals that held."""
    print(f"\n| application | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for application, row in scores.items():
        cells = [
            f"{100 * score.median:.0f}, {100 * score.ninth_decile:.0f}, {100 * score.bias:+.0f}; "
            f"{100 * score.coverage:.0f}"
            for score in row
        ]
        print(f"| {application} | {' | '.join(cells)} |")


def _scores_of_sizes(data: Path) -> dict[str, list[Score]]:
    """Return the scores of held-out placements and of larger sizes, on T4."""
    scores = {}
    few, many = range(5, 17), range(17, 65)
    for name, size in PARAMETER_BYTES.items():
        profile = read_profile(data / "pollux" / "app-profiles" / name)
        prior = prior_for(KIND, size, NETWORK_BYTES_PER_SECOND)
        larger = [
            larger_sizes(profile, prior, *bounds) for bounds in ((4, few), (4, many), (16, many))
        ]
        scores[name] = [held_out_placements(profile, prior), *larger]
    return scores


def _scores_of_kind(data: Path, kind: OtherKind) -> dict[str, list[Score]]:
    """Return the scores of several devices of another kind, with 0 or 1 device measured."""
    scores = {}
    for name, size in PARAMETER_BYTES.items():
        path = data / "hetero" / name / f"placements-{kind.name}.csv"
        if not path.exists():
            continue
        profile = read_profile(data / "pollux" / "app-profiles" / name)
        t4_model = fit(profile.placements, prior_for(KIND, size, NETWORK_BYTES_PER_SECOND))
        carried = prior_from_kind(t4_model, kind.name, kind.speed_ratio)
        fresh = prior_for(kind.name, size, kind.network_bytes_per_second)
        observations = [_placement_observation(row, kind.name) for row in _rows(path)]
        cases = ((carried, 0), (carried, 1), (fresh, 1))
        scores[name] = [another_kind(observations, prior, measured) for prior, measured in cases]
    return scores


def main() -> None:
    """Print the tables of docs/goodput.md."""
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        sys.exit("CASTOR_DATA is not set: it must name the folder that holds pollux/app-profiles")
    sizes = ("placements held out", "1-4 -> 5-16", "1-4 -> 17-64", "1-16 -> 17-64")
    print("Relative errors of step times in %: median, ninth decile, bias; 90 % intervals held")
    _print_table(sizes, _scores_of_sizes(Path(data)))
    print("\nThe same with synchronisation that grows with each device, as published")
    with published_growth():
        _print_table(sizes, _scores_of_sizes(Path(data)))
    priors = ("from T4, 0 measured", "from T4, 1 device measured", "from bytes, 1 device measured")
    for kind in OTHER_KINDS:
        print(f"\nMore than one device of {kind.name}")
        _print_table(priors, _scores_of_kind(Path(data), kind))


if __name__ == "__main__":
    main()
