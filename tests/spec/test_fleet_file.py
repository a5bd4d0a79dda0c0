from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.market.prices import Discount
from autoscaler.spec.fleet_file import FleetFile, load_fleet


def test_shares_and_agreed_prices(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "shares: {ada: 2, bob: 0.5}\n"
        'discounts:\n  - {provider: aws, type: "g5*", factor: 0.8, reason: agreed}\n'
    )
    discount = Discount("aws", "agreed", "g5*", factor=Decimal("0.8"))
    assert load_fleet(path) == FleetFile({"ada": 2.0, "bob": 0.5}, (discount,))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("shares: {ada: 0}", "fleet.yaml:1: shares.ada: must be more than 0"),
        ("shares: {ada: .inf}", "shares.ada: must be a number"),
        ("shares: [ada]", "shares: must be a mapping"),
        ("share: {ada: 1}", 'did you mean "shares"'),
        ("discounts: [{provider: aws, reason: r}]", "needs a factor or usd_per_hour"),
    ],
)
def test_what_can_not_be_used_is_told_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as refused:
        load_fleet(path)
    assert problem in str(refused.value)
