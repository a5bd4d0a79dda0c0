"""Comparisons of the ledger with clouds' own bills, as people keep them for all to see.

The controller has no access to a bill. A person who has compares it (`castor reconcile --keep`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from threading import Lock
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls
from autoscaler.ledger.reconciliation import Comparison
from autoscaler.store.store import Store
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.cost_messages import BillComparison, BillComparisonView

MOST_DAYS: Final = 400
"""Most days of one comparison."""

_KEY: Final = "compared bills"
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_LONGEST_NAME: Final = 100
_MOST_PROVIDERS: Final = 20
_MOST_USD: Final = Decimal(10) ** 12
_Views = tuple[BillComparisonView, ...]


class CloudBills:
    """Last comparison with the bill of each provider. Threads may share this."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()

    def views(self) -> tuple[BillComparisonView, ...]:
        """Return the kept comparisons, by provider."""
        return tuple(map(_judged, self._kept()))

    def _kept(self) -> tuple[BillComparisonView, ...]:
        text = self._store.settings.known(_KEY)
        return () if text is None else decode(_Views, text)

    def keep(self, provider: str, comparison: BillComparison, person: str) -> BillComparisonView:
        """Keep a comparison in place of the provider's earlier one.

        Raises:
            SpecError: a name, a day or an amount is invalid.
        """
        require_comparison(provider, comparison)
        view = BillComparisonView(provider, comparison, person, self._clock.now())
        with self._lock:
            others = [known for known in self._kept() if known.provider != provider]
            if len(others) >= _MOST_PROVIDERS:
                raise SpecError(
                    f"is one more than the {_MOST_PROVIDERS} that are kept", "provider"
                )
            kept = sorted((*others, view), key=lambda known: known.provider)
            self._store.settings.replace(_KEY, encode(_Views, tuple(kept)).decode())
        return _judged(view)


def settled_instances(comparison: BillComparison) -> Comparison | None:
    """Return the sums of instances over the settled days; None if no day is settled."""
    days = [day for day in comparison.days if day.is_settled]
    ledger_usd = sum((day.ledger_usd for day in days), Decimal(0))
    billed_usd = sum((day.billed_usd for day in days), Decimal(0))
    return Comparison.of(ledger_usd, billed_usd) if days else None


def _judged(view: BillComparisonView) -> BillComparisonView:
    """Return a kept comparison with its result, by the rule of today."""
    settled = settled_instances(view.comparison)
    return replace(view, agrees=None if settled is None else settled.agrees)


def require_comparison(provider: str, comparison: BillComparison) -> None:
    """Check a comparison.

    Raises:
        SpecError: a name, a day or an amount is invalid.
    """
    if not _PROVIDER.fullmatch(provider):
        raise SpecError("is no name of a provider, such as aws", "provider")
    for field in ("cloud", "deployment"):
        name = getattr(comparison, field)
        if not name or len(name) > _LONGEST_NAME or has_controls(name):
            raise SpecError(f"needs 1 to {_LONGEST_NAME} printable characters", field)
    days = [compared.day for compared in comparison.days]
    if not days or len(days) > MOST_DAYS:
        raise SpecError(f"has {len(days)} days: give 1 to {MOST_DAYS}", "days")
    if sorted(set(days)) != days:
        raise SpecError("must be in order, each once", "days")
    for compared in comparison.days:
        for field in ("ledger_usd", "billed_usd", "beside_usd"):
            usd: Decimal = getattr(compared, field)
            # Credits and refunds make an amount of a bill negative.
            if not usd.is_finite() or abs(usd) > _MOST_USD:
                raise SpecError(f"of {compared.day} is no amount in US dollars", f"days.{field}")
