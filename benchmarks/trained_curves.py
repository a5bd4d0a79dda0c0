"""Forecasts of learning curves of real training, none of which was used to develop them.

    python benchmarks/trained_curves.py

Multi-layer perceptrons of scikit-learn (extra `demo`) with random learning rates, up to
divergence, on three of its data sets: an accuracy, a squared error and a cross-entropy, on small
validation sets, with all their noise. 72 configurations of 40 epochs each take some minutes.
Scored and printed as in `benchmarks/learning_curves.py`.
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
    """Data, a random model for it, and its score on held-out data."""

    name: str
    maximize: bool
    inputs: FloatArray
    targets: FloatArray
    model: Callable[[np.random.Generator], Model]
    score: Callable[[Model, FloatArray, FloatArray], float]


def problems() -> list[Problem]:
    """Return an accuracy, a squared error and a cross-entropy problem."""
    hastie, signs = make_hastie_10_2(900, random_state=0)
    friedman, height = make_friedman1(500, n_features=12, noise=1.0, random_state=0)
    digits, digit = load_digits(return_X_y=True)
    return [
        Problem(
            "accuracy", True, hastie, signs, _adam_classifier,
            lambda model, x, y: float(model.score(x, y)),
        ),
        Problem(
            "squared error", False, friedman, (height - height.mean()) / height.std(),
            _sgd_regressor,
            lambda model, x, y: float(mean_squared_error(y, model.predict(x))),
        ),
        Problem(
            "cross-entropy", False, digits[900:1700], digit[900:1700], _sgd_classifier,
            lambda model, x, y: float(log_loss(y, model.predict_proba(x))),
        ),
    ]  # fmt: skip


def trained(problem: Problem) -> Set:
    """Return one curve for each configuration."""
    scaled = StandardScaler().fit_transform(problem.inputs)
    train_inputs, test_inputs, train_targets, test_targets = train_test_split(
        scaled, problem.targets, test_size=0.3, random_state=0
    )
    generator = np.random.default_rng(0)
    curves = []
    for _ in range(CONFIGURATIONS):
        model = problem.model(generator)
        classes = {"classes": np.unique(train_targets)} if isinstance(model, MLPClassifier) else {}
        curves.append(
            np.array(
                [
                    _score_after_epoch(
                        problem,
                        model,
                        (train_inputs, train_targets, test_inputs, test_targets),
                        classes,
                    )
                    for _ in range(EPOCHS)
                ]
            )
        )
    progress = np.arange(1.0, EPOCHS + 1.0)
    return Set(problem.name, "trained here", problem.maximize, [progress] * len(curves), curves)


def _score_after_epoch(
    problem: Problem,
    model: Model,
    data: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    classes: dict[str, FloatArray],
) -> float:
    """Train for one epoch, and return the score; NaN once the weights are not finite."""
    train_inputs, train_targets, test_inputs, test_targets = data
    try:
        model.partial_fit(train_inputs, train_targets, **classes)
        return problem.score(model, test_inputs, test_targets)
    except ValueError:
        return float("nan")


def _hyperparameters(generator: np.random.Generator) -> tuple[float, int, int]:
    """Return a random learning rate, batch size and width."""
    rate = 10.0 ** generator.uniform(-4.5, 0.3)
    return rate, int(2 ** generator.integers(4, 8)), int(2 ** generator.integers(2, 7))


def _adam_classifier(generator: np.random.Generator) -> Model:
    rate, batch, width = _hyperparameters(generator)
    return MLPClassifier(
        (width, width), learning_rate_init=rate / 10.0, batch_size=batch, random_state=0
    )


def _sgd_classifier(generator: np.random.Generator) -> Model:
    rate, batch, width = _hyperparameters(generator)
    return MLPClassifier(
        (width,), solver="sgd", learning_rate_init=rate, batch_size=batch,
        momentum=generator.uniform(0.0, 0.99), random_state=0,
    )  # fmt: skip


def _sgd_regressor(generator: np.random.Generator) -> Model:
    rate, batch, width = _hyperparameters(generator)
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
