"""Forecasts of learning curves of real training, done here: nothing of it was seen in making them.

    python benchmarks/trained_curves.py

Multi-layer perceptrons of scikit-learn (extra `demo`) with random learning rates, up to such as
diverge, on three of its data sets: an accuracy, a squared error and a cross-entropy, on small
validation sets, with all their noise. 72 configurations of 40 epochs each; some minutes. Judged
and printed as in `benchmarks/learning_curves.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from learning_curves import FloatArray, Set, cases, judged, situations, table
from sklearn.datasets import load_digits, make_friedman1, make_hastie_10_2
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

CONFIGURATIONS = 72
EPOCHS = 40
Model: TypeAlias = MLPClassifier | MLPRegressor


@dataclass(frozen=True)
class Problem:
    """Data, and how a model is made of a random generator and judged on data held back."""

    name: str
    maximize: bool
    inputs: FloatArray
    targets: FloatArray
    model: Callable[[np.random.Generator], Model]
    score: Callable[[Model, FloatArray, FloatArray], float]


def problems() -> list[Problem]:
    """An accuracy, a squared error and a cross-entropy."""
    hastie, signs = make_hastie_10_2(900, random_state=0)
    friedman, height = make_friedman1(500, n_features=12, noise=1.0, random_state=0)
    digits, digit = load_digits(return_X_y=True)
    return [
        Problem("accuracy", True, hastie, signs, _adam, lambda m, x, y: float(m.score(x, y))),
        Problem(
            "squared error", False, friedman, (height - height.mean()) / height.std(), _regressor,
            lambda m, x, y: float(mean_squared_error(y, m.predict(x))),
        ),
        Problem(
            "cross-entropy", False, digits[900:1700], digit[900:1700], _descent,
            lambda m, x, y: float(log_loss(y, m.predict_proba(x))),
        ),
    ]  # fmt: skip


def trained(problem: Problem) -> Set:
    """One curve for each configuration."""
    scaled = StandardScaler().fit_transform(problem.inputs)
    known, held, answers, truth = train_test_split(
        scaled, problem.targets, test_size=0.3, random_state=0
    )
    generator = np.random.default_rng(0)
    curves = []
    for _ in range(CONFIGURATIONS):
        model = problem.model(generator)
        classes = {"classes": np.unique(answers)} if isinstance(model, MLPClassifier) else {}
        curves.append(
            np.array(
                [
                    _epoch(problem, model, (known, answers, held, truth), classes)
                    for _ in range(EPOCHS)
                ]
            )
        )
    progress = np.arange(1.0, EPOCHS + 1.0)
    return Set(problem.name, "trained here", problem.maximize, [progress] * len(curves), curves)


def _epoch(
    problem: Problem,
    model: Model,
    data: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    classes: dict[str, FloatArray],
) -> float:
    """Train for one, and what is reported then: NaN once the weights are none."""
    known, answers, held, truth = data
    try:
        model.partial_fit(known, answers, **classes)
        return problem.score(model, held, truth)
    except ValueError:
        return float("nan")


def _rates(generator: np.random.Generator) -> tuple[float, int, int]:
    """Learning rate, batch size and width."""
    rate = 10.0 ** generator.uniform(-4.5, 0.3)
    return rate, int(2 ** generator.integers(4, 8)), int(2 ** generator.integers(2, 7))


def _adam(generator: np.random.Generator) -> Model:
    rate, batch, width = _rates(generator)
    return MLPClassifier(
        (width, width), learning_rate_init=rate / 10.0, batch_size=batch, random_state=0
    )


def _descent(generator: np.random.Generator) -> Model:
    rate, batch, width = _rates(generator)
    return MLPClassifier(
        (width,), solver="sgd", learning_rate_init=rate, batch_size=batch,
        momentum=generator.uniform(0.0, 0.99), random_state=0,
    )  # fmt: skip


def _regressor(generator: np.random.Generator) -> Model:
    rate, batch, width = _rates(generator)
    return MLPRegressor(
        hidden_layer_sizes=(width,), solver="sgd", learning_rate_init=rate, batch_size=batch,
        momentum=generator.uniform(0.0, 0.99), random_state=0,
    )  # fmt: skip


def main() -> None:
    """Train, forecast, and print tables."""
    warnings.filterwarnings("ignore")
    sets = [trained(problem) for problem in problems()]
    rows = [row for curves in sets for case in cases(curves, 0) for row in judged(case)]
    table("trained here", rows, lambda row: row.case.curves.name)
    table("reports so far", rows, lambda row: str(row.case.reports))
    table("siblings", rows, lambda row: row.case.siblings)
    situations(rows)


if __name__ == "__main__":
    main()
