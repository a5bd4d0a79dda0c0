"""The classifier names the category of labelled ends of output from public threads.

The held-out set shows what to expect of output not seen before; the others were at hand when the
rules were written or changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from autoscaler.domain.report import FailureCategory
from benchmarks.failure_categories import (
    HELD_OUT_SET,
    Tail,
    kappa,
    kappa_of_passes,
    load_tails,
    macro_f1,
)

TAILS = load_tails()


def score(tails: list[Tail]) -> float:
    return macro_f1([tail.agreed for tail in tails], [tail.category for tail in tails])


def test_most_categories_are_told_right() -> None:
    assert len(TAILS) >= 200
    assert score(TAILS) >= 0.93


def test_output_not_seen_before_is_told_right_less_often() -> None:
    held_out = [tail for tail in TAILS if tail.number_of_set == HELD_OUT_SET]
    right = sum(tail.category == tail.agreed for tail in held_out)
    assert right >= 0.85 * len(held_out)
    assert score(held_out) >= 0.85


def test_labels_are_categories_on_which_two_passes_agree() -> None:
    labels = {label for tail in TAILS for label in (tail.first, tail.agreed)}
    assert labels <= {category.value for category in FailureCategory}
    assert kappa_of_passes(TAILS) >= 0.8


def test_a_second_annotator_labels_alike_and_confirms_the_rules() -> None:
    labelled = [tail for tail in TAILS if tail.independent is not None]
    independent = [str(tail.independent) for tail in labelled]
    assert kappa([tail.agreed for tail in labelled], independent) >= 0.9
    assert macro_f1(independent, [tail.category for tail in labelled]) >= 0.90


def test_each_tail_has_its_source_and_no_address_or_secret() -> None:
    sources = [tail.source for tail in TAILS]
    assert len(set(sources)) == len(sources)
    assert all(source.startswith("https://github.com/") for source in sources)
    text = (Path(__file__).parent / "tails" / "tails.yaml").read_text()
    assert not re.search(r"[\w.+-]+@[\w-]+\.[a-z]{2,}|hf_\w{20}|AKIA\w{12}", text)


def test_scores_follow_their_definitions() -> None:
    assert macro_f1(["a", "a", "b"], ["a", "b", "b"]) == (2 / 3 + 2 / 3) / 2
    assert kappa(["a", "b"], ["a", "b"]) == 1.0
    assert kappa(["a", "a", "b", "b"], ["a", "b", "a", "b"]) == 0.0
