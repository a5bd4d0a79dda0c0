"""`castor costs` with a job, and its export."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError
from autoscaler.domain.time_use import CostCategory
from autoscaler.wire.cost_messages import (
    AlternativeView,
    BandView,
    CategoryView,
    CostSplitView,
    CounterfactualView,
    ReceiptView,
    RunsTotalView,
)

WIDE = {"COLUMNS": "160"}


def split(usd: str, **shares: float) -> CostSplitView:
    """Return a split of 1,000 s by shares."""
    parts = tuple(
        CategoryView(CostCategory(name), 1000 * share, Decimal(usd) * Decimal(str(share)), share)
        for name, share in shares.items()
    )
    return CostSplitView(Decimal(usd), 1000, shares.get("useful"), parts)


WHOLE = split("20", useful=0.9, boot=0.05, idle=0.0, pause=0.02, lost=0.03, transfer=0.0)
RECEIPT = ReceiptView("digits", True, WHOLE, {"gpu/spot": WHOLE}, 12, 4e6)


BAND = BandView(30.0, 25.0, 40.0)
BILL = CounterfactualView(
    *("digits", Decimal("20"), 3600.0, 4e6, 12, 3),
    alternatives=(
        AlternativeView("best fixed pool, no later", BAND, BAND, Allocation("gpu/spot", 2, 8)),
        AlternativeView("marginal", BAND, BAND, title="Castor's own rule"),
        AlternativeView("pollux", problem="it can't plan this run"),
    ),
)


class ControllerStub:
    """Controller that answers with one receipt, and a file for FOCUS."""

    def __init__(self) -> None:
        self.view = RECEIPT
        self.days: tuple[date, date] | None = None

    def receipt(self, name: str) -> ReceiptView:
        assert name == "digits"
        return self.view

    def counterfactual(self, name: str) -> CounterfactualView:
        return BILL

    def download_focus(self, first: date, last: date, destination: Path) -> None:
        self.days = first, last
        destination.write_text("BilledCost\n")


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> ControllerStub:
    stub = ControllerStub()
    monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: stub)
    return stub


def output(*words: str) -> str:
    result = CliRunner().invoke(app, ["costs", *words], env=WIDE, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_receipt_is_a_table_with_the_share_of_each_category(controller: ControllerStub) -> None:
    text = output("digits")
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["useful"][1:3] == ["$18.00", "90.0%"]
    assert rows["total"][1] == "$20.00"
    assert "90.0% of the billed time was productive" in text
    assert "$5 per million useful examples" in text
    assert "12 steps were made twice" in text
    assert "unknown" not in text


def test_sums_over_all_runs_follow_the_receipt_of_a_resumed_job(
    controller: ControllerStub,
) -> None:
    assert "runs" not in output("digits")
    both = split("30", useful=0.8, boot=0.2)
    controller.view = replace(RECEIPT, all_runs=RunsTotalView(2, both, 5e6))
    own, _, total = output("digits").partition("all 2 runs: this one, and those")
    assert "total $20.00" in " ".join(own.split())
    assert "total $30.00" in " ".join(total.split())
    assert "80.0% of the billed time was productive" in total
    assert "$6 per million useful examples" in total
    told = json.loads(output("digits", "--json"))
    assert told["whole"]["usd"] == "20"
    assert (told["all_runs"]["runs"], told["all_runs"]["whole"]["usd"]) == (2, "30")


def test_unknown_time_and_several_offers_are_shown(controller: ControllerStub) -> None:
    known = split("10", useful=1.0)
    unknown = split("10", useful=0.2, unknown=0.8)
    both = CostSplitView(Decimal(20), 2000, 0.6, (*split("20", useful=0.6, unknown=0.4).parts,))
    controller.view = ReceiptView("digits", False, both, {"a": known, "b": unknown})
    text = output("digits")
    assert "unknown: no agent has reported the use of this time" in text
    assert "productive so far" in text
    (row,) = (line for line in text.splitlines() if line.startswith("b "))
    assert row.split() == ["b", "$10.00", "20%", "80%"]


def test_a_receipt_as_json_has_all_fields(controller: ControllerStub) -> None:
    told = json.loads(output("digits", "--json"))
    assert told["whole"]["parts"][0] == {
        **{"category": "useful", "seconds": 900.0},
        **{"usd": "18.0", "share": 0.9},
    }


def test_an_export_has_thirty_days_or_those_that_are_named(
    controller: ControllerStub, tmp_path: Path
) -> None:
    file = tmp_path / "focus.csv"
    text = output("--focus", str(file), "--first", "2026-01-01", "--last", "2026-01-31")
    assert controller.days == (date(2026, 1, 1), date(2026, 1, 31))
    assert file.read_text() == "BilledCost\n"
    assert "FOCUS 1.2" in text
    output("--focus", str(file), "--last", "2026-01-31")
    assert controller.days == (date(2026, 1, 2), date(2026, 1, 31))


def test_a_counterfactual_bill_tells_billed_from_simulated(controller: ControllerStub) -> None:
    text = output("digits", "--counterfactual")
    rows = {line.split("  ")[0]: line for line in text.splitlines() if line.strip()}
    assert "$20.00" in rows["this run"] and rows["this run"].rstrip().endswith("billed")
    pool = rows["best fixed pool, no later"]
    assert "~$30" in pool and "$25 to $40" in pool and "simulated, 2 x gpu/spot" in pool
    assert "it can't plan this run" in rows["pollux"]
    assert "12 decisions replayed; 3 more have no recorded state any more" in text
    assert "Nothing in them was billed" in text
    told = json.loads(output("digits", "--counterfactual", "--json"))
    assert told["alternatives"][0]["usd"] == {"median": 30.0, "low": 25.0, "high": 40.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--counterfactual",), "--counterfactual: is for one job"),
        (("--first", "2026-01-01"), "--first: is for --focus only"),
        (("--last", "2026-01-01"), "--last: is for --focus only"),
        (("--focus", "x.csv", "--first", "soon"), '--first: "soon" is no day'),
        (("--focus", "x.csv", "--last", "2026-02-30"), '--last: "2026-02-30" is no day'),
        (("digits", "--focus", "x.csv"), '"digits" can\'t be exported alone'),
        (
            ("--focus", "x.csv", "--first", "2026-02-01", "--last", "2026-01-01"),
            "2026-02-01 is after the last day, 2026-01-01",
        ),
        (("--focus", "/no/such/folder/x.csv"), "--focus: /no/such/folder/x.csv can't be written"),
    ],
)
def test_what_can_not_be_exported_is_refused(
    controller: ControllerStub, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        CliRunner().invoke(app, ["costs", *words], env=WIDE, catch_exceptions=False)
    assert message in str(refused.value)
