"""The demo's simulated cloud: its inputs, its table and its picture."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from autoscaler.cli.demo.paid_run import PaidRun
from autoscaler.cli.demo.scenario import examples_directory
from autoscaler.cli.demo.value import draw_if_possible, options_of, print_value
from autoscaler.cli.simulate.run import prepare

CASTOR = PaidRun("Castor", 188.0, 0.8, 10)
RIVALS = (
    PaidRun("scaling by throughput per dollar", 349.0, 1.9, 10),
    PaidRun("4 x 4 T4", 192.0, 2.2, 10, is_pool=True),
    PaidRun("1 x 8 A100", 366.0, 1.1, 10, is_pool=True),
)


def test_the_inputs_are_complete_and_elastic() -> None:
    prepared = prepare(options_of(examples_directory()))
    assert prepared.jobs == 10
    assert {item.profile_kind for item in prepared.market.equipment.values()} == {"t4", "a100"}


def test_the_table_names_the_best_pool_by_dollars_with_waiting() -> None:
    text = io.StringIO()
    print_value(Console(file=text, width=120), CASTOR, RIVALS)
    castor, throughput, pool = text.getvalue().splitlines()[1:4]
    assert castor.split() == ["Castor", "188", "0.8", "508"]
    assert throughput.endswith("+118%")
    assert "best of 2 fixed pools in hindsight: 1 x 8 A100" in pool and pool.endswith("+59%")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_is_drawn(tmp_path: Path, suffix: str) -> None:
    path, text = tmp_path / f"demo.{suffix}", io.StringIO()
    draw_if_possible(path, CASTOR, RIVALS, Console(file=text, width=200))
    assert path.stat().st_size > 5_000 and str(path) in text.getvalue()


def test_a_picture_that_can_not_be_drawn_ends_nothing(tmp_path: Path) -> None:
    text = io.StringIO()
    draw_if_possible(tmp_path / "demo.gif", CASTOR, RIVALS, Console(file=text, width=200))
    assert "no picture" in text.getvalue() and ".png, .svg or .pdf" in text.getvalue()
