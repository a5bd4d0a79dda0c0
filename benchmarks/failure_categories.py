"""Scores of the classifier of failures on labelled ends of output from public threads.

The tails of tests/failures/tails are in five sets, by the time at which they were gathered. The
rules were written with sets 1 to 4 at hand; set 5, the held-out one, was gathered after the last
change of a rule. Kappa compares the two passes of labels, and those agreed on with the labels of a
second annotator.

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
HELD_OUT_SET = 5


@dataclass(frozen=True)
class Tail:
    """End of the output of a failed program, with its labels.

    `first` and `second` are two passes of one annotator, who agreed on `agreed`; `independent` is
    the label of another one, who saw neither those nor the rules.
    """

    source: str
    number_of_set: int
    exit_code: int
    lines: tuple[str, ...]
    first: str
    second: str
    agreed: str
    independent: str

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
        first, second, agreed = passes if len(passes) == 3 else passes * 3
        tails.append(
            Tail(
                source=row["source"],
                number_of_set=row["set"],
                exit_code=row.get("exit_code", 1),
                lines=tuple(row["lines"]),
                first=first,
                second=second,
                agreed=agreed,
                independent=independent[row["source"]],
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


def main() -> None:
    """Print the scores of each set and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", action="store_true", help="Print the tails told wrongly.")
    arguments = parser.parse_args()
    tails = load_tails()
    numbers = sorted({tail.number_of_set for tail in tails})
    parts = {f"set {n}": [tail for tail in tails if tail.number_of_set == n] for n in numbers}
    parts[f"set {HELD_OUT_SET} (held out)"] = parts.pop(f"set {HELD_OUT_SET}")
    for name, part in {**parts, "all": tails}.items():
        truths, guesses = [tail.agreed for tail in part], [tail.category for tail in part]
        right = sum(truth == guess for truth, guess in zip(truths, guesses, strict=True))
        others = [tail.independent for tail in part]
        print(
            f"{name}: {right} of {len(part)} right, macro-F1 {macro_f1(truths, guesses):.2f}, "
            f"by the second annotator's labels {macro_f1(others, guesses):.2f}"
        )
    passes = kappa([tail.first for tail in tails], [tail.second for tail in tails])
    annotators = kappa([tail.agreed for tail in tails], [tail.independent for tail in tails])
    print(f"labels: kappa of two passes {passes:.2f}, of two annotators {annotators:.2f}")
    if arguments.misses:
        for tail in tails:
            if tail.category != tail.agreed:
                print(f"{tail.source}: {tail.agreed}, told as {tail.category}")


if __name__ == "__main__":
    main()
