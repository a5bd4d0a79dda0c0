from __future__ import annotations

import pytest

from autoscaler.cli.submit.changes import bounds_text, parse_changes
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import GpuKind, InstanceBounds

BOUNDS = InstanceBounds(1, 4, offers=("a",))


@pytest.mark.parametrize(
    ("word", "offers"),
    [("offers=a, b,", ("a", "b")), ("offers=any", None), ("offers=", None)],
)
def test_offers_are_named_or_any(word: str, offers: tuple[str, ...] | None) -> None:
    change = parse_changes([word], BOUNDS, 0.0)
    assert change.instances is not None and change.instances.offers == offers


@pytest.mark.parametrize(("word", "priority"), [("high", 4.0), ("2.5", 2.5)])
def test_a_priority_is_a_word_or_a_number(word: str, priority: float) -> None:
    change = parse_changes([f"priority={word}"], BOUNDS, 0.0)
    assert (change.priority, change.instances) == (priority, None)


def test_another_word_is_no_priority() -> None:
    with pytest.raises(SpecError, match=r"set priority: .* write low, normal, high or a number"):
        parse_changes(["priority=urgent"], BOUNDS, 0.0)


def test_no_offer_at_all_is_refused() -> None:
    with pytest.raises(SpecError, match=r"set offers: .* write any"):
        parse_changes(["offers=,"], BOUNDS, 0.0)


def test_gpus_are_named_or_any() -> None:
    change = parse_changes(["gpu=H100:8,L4"], BOUNDS, 0.0)
    assert change.instances is not None
    assert change.instances.gpus == (GpuKind("h100", 8), GpuKind("l4"))
    change = parse_changes(["gpu=any"], change.instances, 0.0)
    assert change.instances is not None and change.instances.gpus is None
    with pytest.raises(SpecError, match=r'set gpu: "H100:x": write NAME or NAME:NUMBER'):
        parse_changes(["gpu=H100:x"], BOUNDS, 0.0)


def test_the_highest_price_is_an_amount_or_none() -> None:
    change = parse_changes(["max_usd_per_hour=$12.5", "max_instance_usd_per_hour=4"], BOUNDS, 0.0)
    assert change.instances is not None
    assert change.instances.ceiling_text == "$12.5/h, $4/h an instance"
    assert "at most $12.5/h" in bounds_text(change.instances)
    lifted = parse_changes(["max_usd_per_hour=none"], change.instances, 0.0).instances
    assert lifted is not None and lifted.max_usd_per_hour is None
    with pytest.raises(SpecError, match=r"set max_usd_per_hour: .*not an amount above .*or none"):
        parse_changes(["max_usd_per_hour=little"], BOUNDS, 0.0)


def test_bounds_are_told_with_all_that_limits_offers() -> None:
    assert bounds_text(InstanceBounds(1, 4)) == "1 to 4 instances"
    limited = InstanceBounds(2, 4, ("a",), spot=False, gpus=(GpuKind("h100", 8),))
    assert bounds_text(limited) == "2 to 4 instances of a, h100:8 on demand"


@pytest.mark.parametrize("key", ["deadline", "budget", "value_of_time", "cheapest"])
def test_a_term_of_the_objective_says_how_it_is_written(key: str) -> None:
    with pytest.raises(SpecError, match=f"unknown key '{key}': write objective={key}"):
        parse_changes([f"{key}=2"], InstanceBounds(), 0.0)
