"""Contract of a cloud's bill, with which `castor reconcile` compares the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Protocol

from autoscaler.domain.spending import AccountCost


class AccountBill(Protocol):
    """Bill of a cloud account."""

    @property
    def asked_usd(self) -> Decimal:
        """US dollars that the queries for this bill have cost so far."""
        ...

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """Return the costs of a deployment from `first` to `last` (UTC days, inclusive).

        Raises:
            ProviderError: the cloud refuses the query or does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class BillWords:
    """Wording of messages about the bill of one cloud.

    Attributes:
        cloud: name of the company that bills.
        tag: tag of a deployment's resources, with a `{deployment}` field.
        extras: resources beside instances that the bill and the ledger contain.
        nothing: remedies for a bill without any cost of the deployment.
        less: causes of a bill that is below the ledger.
        asked: sentence on the cost of the query, with a `{usd}` field.
    """

    cloud: str
    tag: str
    extras: str
    nothing: str
    less: str
    asked: str


@dataclass(frozen=True, slots=True)
class Account:
    """Cloud account with a bill.

    Attributes:
        words: wording of messages about the bill.
        has: function that returns whether an offer is billed to this account.
        open_bill: function that returns the bill.
    """

    words: BillWords
    has: Callable[[str], bool]
    open_bill: Callable[[], AccountBill]


@dataclass(frozen=True, slots=True)
class BillSource:
    """Source of a bill, as the options of `castor reconcile` name it.

    Attributes:
        table: the table to which the cloud exports its bill; None: `--table` is not given.
        payer: the project that pays for the query; None: `--project` is not given.
    """

    table: str | None = None
    payer: str | None = None
