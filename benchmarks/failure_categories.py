"""Scores of the classifier of failures on labelled ends of output from public threads.

The tails of tests/failures/tails are in sets, by the time at which they were gathered; the README
there says which were at hand when a rule was last changed. Kappa compares the two passes of
labels, and those agreed on with the labels of a second annotator, of the sets that have these.

    python benchmarks/failure_categories.py [--misses]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscaler.failures.causes import diagnose

_TAILS = Path(__file__).parents[1] / "tests" / "failures" / "tails"
HELD_OUT_SET = 7


@dataclass(frozen=True)
class Tail:
    """End of the output of a failed program, with its labels.

    `first` and `second` are two passes of one annotator, who agreed on `agreed`; `independent` is
    the label of another one, who saw neither those nor the rules. A tail that was labelled once
    has neither `second` nor `independent`.
    """

    source: str
    number_of_set: int
    exit_code: int
    lines: tuple[str, ...]
    first: str
    second: str | None
    agreed: str
    independent: str | None

    @property
    def category(self) -> str:
        """The category that the classifier gives."""
        return str(diagnose(self.exit_code, self.lines).category)


def load_tails() -> list[Tail]:
    """Return all labelled tails."""
    labels: Mapping[str, list[str]] = _read("labels.yaml")
    independent: Mapping[str, str] = _read("independent_labels.yaml")
    rows = _read("tails.yaml")
    tails = []
    for row in rows:
        passes = labels[row["source"]]
        other = independent.get(row["source"])
        second = passes[min(1, len(passes) - 1)] if other else None
        tails.append(
            Tail(
                source=row["source"],
                number_of_set=row["set"],
                exit_code=row.get("exit_code", 1),
                lines=tuple(row["lines"]),
                first=passes[0],
                second=second,
                agreed=passes[-1],
                independent=other,
            )
        )
    return tails


def _read(name: str) -> Any:
    return yaml.safe_load((_TAILS / name).read_text())


def macro_f1(truths: Sequence[str], guesses: Sequence[str]) -> float:
    """Return the mean of the F1 scores of the categories that occur in the truths."""
    scores = []
    for category in set(truths):
        both = sum(pair == (category, category) for pair in zip(truths, guesses, strict=True))
        scores.append(2 * both / (truths.count(category) + guesses.count(category)))
    return sum(scores) / len(scores)


def kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Return Cohen's kappa of two passes of labels."""
    count = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / count
    expected = sum(first.count(label) * second.count(label) for label in set(first)) / count**2
    return (observed - expected) / (1 - expected)


def kappa_of_passes(tails: Sequence[Tail]) -> float:
    """Return kappa of the two passes of labels, of the tails that have two."""
    pairs = [(tail.first, tail.second) for tail in tails if tail.second is not None]
    return kappa([first for first, _ in pairs], [second for _, second in pairs])


def main() -> None:
    """Print the scores of each set and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", action="store_true", help="Print the tails told wrongly.")
    arguments = parser.parse_args()
    tails = load_tails()
    numbers = sorted({tail.number_of_set for tail in tails})
    parts = {f"set {n}": [tail for tail in tails if tail.number_of_set == n] for n in numbers}
    parts[f"set {HELD_OUT_SET} (held out)"] = parts.pop(f"set {HELD_OUT_SET}")
    twice = [tail for tail in tails if tail.independent is not None]
    for name, part in {**parts, "all": tails}.items():
        print_scores(name, [(tail.agreed, tail.category) for tail in part])
    print_scores(
        "by the second annotator's labels",
        [(str(tail.independent), tail.category) for tail in twice],
    )
    annotators = kappa([tail.agreed for tail in twice], [str(tail.independent) for tail in twice])
    print(
        f"labels: kappa of two passes {kappa_of_passes(tails):.2f}, of annotators {annotators:.2f}"
    )
    if arguments.misses:
        for tail in tails:
            if tail.category != tail.agreed:
                print(f"{tail.source}: {tail.agreed}, told as {tail.category}")


def print_scores(name: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Print how many of the pairs of a label and a category are equal, and macro-F1."""
    truths, guesses = [truth for truth, _ in pairs], [guess for _, guess in pairs]
    right = sum(truth == guess for truth, guess in pairs)
    print(f"{name}: {right} of {len(pairs)} right, macro-F1 {macro_f1(truths, guesses):.2f}")


if __name__ == "__main__":
    main()
