"""What a project was billed for a deployment, as Cloud Billing exports it to BigQuery.

It is asked by people, with their own credentials, and not by the controller. The export knows
labels without further ado, and of them what is labelled; it begins when somebody enables it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Final

from google.api_core.exceptions import GoogleAPICallError

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    SpecError,
)
from autoscaler.domain.spending import AccountCost, BillPart
from providers.cloud.bills import HOST, Kind, amount_of, part_of
from providers.cloud.replies import readable
from providers.cloud.stock import is_ware
from providers.cloud.tags import DEPLOYMENT_TAG, HOST_TAG
from providers.gcp.bigquery import BigQuery, Query, Row
from providers.gcp.errors import Call, message_of, reason_in, told
from providers.gcp.replies import label_key
from providers.gcp.session import Session, open_session
from providers.gcp.settings import PROJECT, REGION

_USD_PER_TIB: Final = Decimal("6.25")
_MOST_BYTES: Final = 100 * 2**30  # 61 cents
# Lines are late by a day or two. The first of an export may be so by two months: where its dataset
# is in the US or the EU, it begins with the month before.
_LATE: Final = timedelta(days=70)
_TABLE: Final = re.compile(rf"({PROJECT})\.(\w{{1,1024}})\.([\w-]{{1,1024}})", re.ASCII)
_EXAMPLE: Final = "my-project.billing.gcp_billing_export_v1_0123AB_4567CD_89EF01"
# By the words of SKUs. What is of a machine runs in a place, and a commitment to it does, too.
_KINDS: Final[tuple[Kind, ...]] = (
    (re.compile(r"^(?!Commitment\b).* running in "), BillPart.INSTANCES, "instances"),
    (re.compile(r"\bPD Capacity\b|\bHyperdisk\b"), BillPart.EXTRAS, "disks"),
    (re.compile(r"\b(External|Static) IP Charge\b", re.IGNORECASE), BillPart.EXTRAS, "addresses"),
    # The ledger's extras have it, for each instance, and not what passes through.
    (re.compile(r"\bCloud NAT Gateway Uptime\b", re.IGNORECASE), BillPart.EXTRAS, "NAT"),
    (re.compile(r"\bCloud NAT\b", re.IGNORECASE), BillPart.BESIDE, "NAT"),
    (re.compile(r"\bLocal Storage\b"), BillPart.BESIDE, "local SSDs"),
    (re.compile(r"\b(Data Transfer|Egress|Ingress)\b"), BillPart.BESIDE, "transfer"),
)
# Those that say what a use costs. Others pay for it, or offset what a commitment costs by itself.
_DISCOUNTS: Final = (
    "COMMITTED_USAGE_DISCOUNT",
    "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE",
    "DISCOUNT",
    "FREE_TIER",
    "SUBSCRIPTION_BENEFIT",
    "SUSTAINED_USAGE_DISCOUNT",
)
# Columns are in the currency of the account, of which `currency_conversion_rate` is a dollar's
# worth. A line is in the partition of the day on which it was exported.
_SQL: Final = """\
WITH line AS (
  SELECT
    DATE(usage_start_time) AS day,
    service.description AS service_name,
    sku.description AS sku_name,
    (
      SELECT MAX(label.key) FROM UNNEST(labels) AS label
      WHERE label.key IN (@own_label, @host_label) AND label.value = @deployment
    ) AS label_key,
    cost + IFNULL(
      (SELECT SUM(credit.amount) FROM UNNEST(credits) AS credit WHERE credit.type IN (DISCOUNTS)),
      0
    ) AS amount,
    currency,
    IF(currency = 'USD', 1, NULLIF(currency_conversion_rate, 0)) AS rate
  FROM `TABLE`
  WHERE _PARTITIONTIME >= TIMESTAMP(@first) AND _PARTITIONTIME < TIMESTAMP(@until)
    AND DATE(usage_start_time) BETWEEN @first AND @last
    AND cost_type = 'regular'
)
SELECT
  day,
  service_name,
  sku_name,
  label_key,
  SUM(CAST(amount / rate AS NUMERIC)) AS usd,
  MAX(IF(rate IS NULL, IFNULL(currency, 'no currency'), NULL)) AS without_rate
FROM line
WHERE label_key IS NOT NULL
GROUP BY day, service_name, sku_name, label_key
ORDER BY day, service_name, sku_name, label_key
"""
_OWN_LABEL: Final = label_key(DEPLOYMENT_TAG)
_HOST_LABEL: Final = label_key(HOST_TAG)
# By BigQuery's reasons: what they mean here, and the way out.
_WAYS: Final[dict[str, tuple[type[ProviderError], str]]] = {
    "accessDenied": (
        PermissionDenied,
        "your own credentials need bigquery.jobs.create in {payer} (roles/bigquery.jobUser), and "
        "bigquery.tables.getData on the dataset (roles/bigquery.dataViewer)",
    ),
    "accessNotConfigured": (
        PermissionDenied,
        "enable bigquery.googleapis.com in {payer}, or name another project with --project",
    ),
    "bytesBilledLimitExceeded": (QuotaExceeded, "ask for fewer days with --from and --to"),
    "invalidQuery": (
        NotFound,
        "--table: name the standard or detailed export itself, no view or copy of it, such as "
        f"{_EXAMPLE}",
    ),
    "notFound": (
        NotFound,
        f"--table: name the export's, such as {_EXAMPLE}: it is there some hours after the export "
        "was enabled",
    ),
}
# What a refusal for another reason is like.
_USUAL: Final[dict[type[ProviderError], str]] = {
    PermissionDenied: "accessDenied",
    NotFound: "invalidQuery",
}


@dataclass(frozen=True, slots=True)
class ExportTable:
    """A table that Cloud Billing exports to; `project` is whose it is."""

    project: str
    name: str


def is_of_gcp(offer_id: str) -> bool:
    """Whether the ledger's offer is one of Compute Engine's."""
    return is_ware(offer_id, REGION)


def parse_table(text: str) -> ExportTable:
    """The table that ``PROJECT.DATASET.TABLE`` names.

    Raises:
        SpecError: it names none.
    """
    found = _TABLE.fullmatch(text)
    if found is None:
        raise SpecError(f"{text!r} is no table: write it like {_EXAMPLE}", "--table")
    return ExportTable(found[1], text)


def parse_payer(text: str | None, table: ExportTable) -> str:
    """The project that pays for the query: the table's if none is named.

    Raises:
        SpecError: this is the name of none.
    """
    if text is None:
        return table.project
    if re.fullmatch(PROJECT, text) is None:
        raise SpecError(f"{text!r} is no project's id: write it like my-project-123", "--project")
    return text


def open_report(table: ExportTable, payer: str, clock: Clock) -> CostReport:
    """The export, for the credentials of the environment.

    Where BIGQUERY_EMULATOR_HOST names an emulator, that is asked.

    Raises:
        PermissionDenied: there are none.
    """
    session = open_session(os.environ.get("BIGQUERY_EMULATOR_HOST") or None)
    return CostReport(table, payer, session, clock)


class CostReport:
    """The export in `table`; `payer` is the project that pays for asking."""

    def __init__(self, table: ExportTable, payer: str, session: Session, clock: Clock) -> None:
        self._table = table
        self._payer = payer
        self._bigquery = BigQuery(payer, session, clock)
        self._billed_bytes = 0

    @property
    def asked_usd(self) -> Decimal:
        """What asking has cost so far, at BigQuery's price in the US."""
        return self._billed_bytes * _USD_PER_TIB / 2**40

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """What these days (UTC), the last one included, cost of what has the deployment's labels.

        Raises:
            PermissionDenied: the credentials do not allow it, or the project has no BigQuery.
            NotFound: there is no such table, or it is no export.
            QuotaExceeded: it would read too much.
            ProviderError: it does not answer, or not so that it can be read.
        """
        try:
            found = self._bigquery.find(self._query(deployment, first, last))
        except ProviderError as error:
            raise self._meant(error) from error
        self._billed_bytes += found.billed_bytes
        with readable(self._table.name):
            for row in found.rows:
                self._require_rate(row)
            return tuple(_cost(row) for row in found.rows)

    def _query(self, deployment: str, first: date, last: date) -> Query:
        discounts = ", ".join(f"'{one}'" for one in _DISCOUNTS)
        parameters: dict[str, str | date] = {
            "own_label": _OWN_LABEL,
            "host_label": _HOST_LABEL,
            "deployment": deployment,
            "first": first,
            "last": last,
            "until": last + _LATE,
        }
        text = _SQL.replace("DISCOUNTS", discounts).replace("TABLE", self._table.name)
        return Query(text, parameters, _MOST_BYTES)

    def _require_rate(self, row: Row) -> None:
        """What is billed in another currency is in dollars by its rate alone."""
        if row["without_rate"] is not None:
            raise NotFound(
                f"{self._table.name}: lines of {row['day']} in {row['without_rate']} have no "
                "currency_conversion_rate, and the ledger is in USD: leave that day out with "
                "--from and --to"
            )

    def _meant(self, error: ProviderError) -> ProviderError:
        """What Google says is not of the controller and of its settings, but of the person."""
        cause = error.__cause__
        if not isinstance(cause, GoogleAPICallError) or cause.code == HTTPStatus.UNAUTHORIZED:
            return error
        reason = reason_in(cause.errors)
        known = reason if reason in _WAYS else _USUAL.get(type(error))
        if known is None:
            return error
        kind, way = _WAYS[known]
        words = told(reason, message_of(cause), Call(self._payer, "jobs.query"))
        return kind(f"{words}: {way.format(payer=self._payer)}")


def _cost(row: Row) -> AccountCost:
    day, usd = date.fromisoformat(str(row["day"])), amount_of(str(row["usd"]))
    if row["label_key"] == _HOST_LABEL:
        return AccountCost(day, BillPart.BESIDE, HOST, usd)
    service = row["service_name"] or "other services"
    part, name = part_of(row["sku_name"] or "", service, _KINDS)
    return AccountCost(day, part, name, usd)
