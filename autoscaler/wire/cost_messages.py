"""Messages of the HTTP API on what jobs cost: receipts and counterfactual bills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.time_use import CostCategory


@dataclass(frozen=True, slots=True)
class CategoryView:
    """Billed seconds and dollars of one category; `share` is that of the dollars, from 0 to 1.

    Where nothing costs money, `share` is that of the seconds.
    """

    category: CostCategory
    seconds: float
    usd: Decimal
    share: float


@dataclass(frozen=True, slots=True)
class CostSplitView:
    """Cost and billed seconds with their parts, whose sums they are.

    All categories are there, in the order of `CostCategory`; `unknown` only if it has a part.
    `productive_share` is the share of billed seconds that were useful; None if none were billed.
    """

    usd: Decimal
    billed_seconds: int
    productive_share: float | None
    parts: tuple[CategoryView, ...]


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """Receipt of a job: its billed seconds and dollars by purpose (docs/receipt.md).

    `is_final`: the job has ended and holds no instance. `lost_steps` were made twice, after a
    failure of all instances. `useful_examples` is the progress that the dollars bought; None if
    unknown.
    """

    job: str
    is_final: bool
    whole: CostSplitView
    by_offer: Mapping[str, CostSplitView] = field(default_factory=dict)
    lost_steps: int = 0
    useful_examples: float | None = None
