"""Messages of the HTTP API on what jobs cost: receipts and counterfactual bills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.time_use import CostCategory
from autoscaler.wire.messages import FROM_PEOPLE


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
class RunsTotalView:
    """Sums over a job and the earlier runs that it goes on from, together at least two `runs`.

    `useful_examples` is the progress of all of them; None if unknown.
    """

    runs: int
    whole: CostSplitView
    useful_examples: float | None = None


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """Receipt of a job: its billed seconds and dollars by purpose (docs/receipt.md).

    `is_final`: the job has ended and holds no instance. `lost_steps` were made twice, after a
    failure of all instances. `useful_examples` is the progress that the dollars bought; None if
    unknown. All these are of this run; `all_runs` has the sums if the job goes on from others.
    """

    job: str
    is_final: bool
    whole: CostSplitView
    by_offer: Mapping[str, CostSplitView] = field(default_factory=dict)
    lost_steps: int = 0
    useful_examples: float | None = None
    all_runs: RunsTotalView | None = None


@dataclass(frozen=True, slots=True)
class BandView:
    """Predicted value: its median, and the 5 % and 95 % quantiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AlternativeView:
    """Predicted bill of a job's progress under another rule.

    `usd` and `seconds`, from submission on, are None with a `problem`. `allocation` is that of a
    fixed pool. `name` stays the same in all releases; `title` is for people, and empty from
    controllers of earlier releases.
    """

    name: str
    usd: BandView | None = None
    seconds: BandView | None = None
    allocation: Allocation | None = None
    problem: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class CounterfactualView:
    """Cost of a job, as billed, and what other rules would have paid, as simulated.

    The alternatives replay `moments` decisions of the journal by the job's fitted model, for the
    same `examples` of progress; nothing in them was billed. `lost` decisions have no kept inputs.
    """

    job: str
    billed_usd: Decimal
    billed_seconds: float
    examples: float
    moments: int
    lost: int
    alternatives: tuple[AlternativeView, ...]


@dataclass(frozen=True, slots=True)
class BilledDay:
    """Costs of one day (UTC) by the ledger and by a cloud's bill, in US dollars.

    Attributes:
        day: the day.
        ledger_usd: instances by the ledger, without extras and transfers.
        billed_usd: the same instances by the bill.
        beside_usd: costs that the ledger does not track, such as networks, by the bill.
        is_settled: whether the day ended so long ago that the bill should have all of it.
        is_estimated: whether the cloud may still change its figures.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    day: date
    ledger_usd: Decimal
    billed_usd: Decimal
    beside_usd: Decimal = Decimal(0)
    is_settled: bool = True
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class BillComparison:
    """Comparison of the ledger with a cloud's bill, day by day, as a person made it.

    `cloud` is the name of the company that bills.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    cloud: str
    deployment: str
    days: tuple[BilledDay, ...]


@dataclass(frozen=True, slots=True)
class BillComparisonView:
    """Last comparison with the bill of one cloud, the person who made it, and its time.

    `provider` is the name of the cloud's provider. `agrees`: whether the costs of instances on the
    settled days differ by no more than `castor reconcile` tolerates; None if no day is settled.
    """

    provider: str
    comparison: BillComparison
    person: str
    at_seconds: float
    agrees: bool | None = None


def receipt_fields(receipt: ReceiptView, prefix: str = "castor/") -> dict[str, float]:
    """Return a receipt as flat fields, for a tracker's run: dollars, seconds and shares.

    The names suit W&B, MLflow and Optuna: `castor/usd`, `castor/useful_usd`,
    `castor/useful_seconds`, `castor/productive_share` and so on.
    """
    whole = receipt.whole
    fields = {"usd": float(whole.usd), "billed_seconds": float(whole.billed_seconds)}
    if whole.productive_share is not None:
        fields["productive_share"] = whole.productive_share
    for part in whole.parts:
        fields[f"{part.category.value}_usd"] = float(part.usd)
        if part.category is not CostCategory.TRANSFER:
            fields[f"{part.category.value}_seconds"] = part.seconds
    return {f"{prefix}{name}": value for name, value in fields.items()}
