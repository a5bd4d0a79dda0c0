"""Controller whose answers about its ledger are set by a test."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal

import pytest

from autoscaler.domain.spending import DailyCost
from autoscaler.wire.cost_messages import BillComparison


class LedgerStub:
    """Ledger that `castor reconcile` asks for; costs default to `offer` and `day`."""

    def __init__(self, offer: str, day: date) -> None:
        self.costs: list[DailyCost] = []
        self.kept: dict[str, BillComparison] = {}
        self._offer = offer
        self._day = day

    def daily_costs(self, first: date, last: date) -> Sequence[DailyCost]:
        return [cost for cost in self.costs if first <= cost.day <= last]

    def keep_bill(self, provider: str, comparison: BillComparison) -> None:
        self.kept[provider] = comparison

    def spend(
        self,
        usd: str,
        extras_usd: str = "0",
        offer: str = "",
        day: date | None = None,
        transfer_usd: str = "0",
    ) -> None:
        parts = Decimal(usd), Decimal(extras_usd), Decimal(transfer_usd)
        self.costs.append(DailyCost(day or self._day, offer or self._offer, *parts))

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let commands connect to this ledger from now on."""
        monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: self)
