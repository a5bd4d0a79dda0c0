"""Project's costs of a deployment, from Cloud Billing's export to BigQuery.

People run the report with their own credentials; the controller does not. The export contains
labels without further set-up, but only labelled resources can be found. The export begins when it
is enabled.
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
from providers.cloud.stock import is_pool_offer
from providers.cloud.tags import DEPLOYMENT_TAG, HOST_TAG
from providers.gcp.bigquery import BigQuery, Query, Row
from providers.gcp.errors import Call, message_of, reason_in, told
from providers.gcp.replies import label_key
from providers.gcp.session import Session, open_session
from providers.gcp.settings import PROJECT, REGION

_USD_PER_TIB: Final = Decimal("6.25")
_MAX_BYTES: Final = 100 * 2**30  # costs $0.61
# Lines are exported a day or two late. The first lines may be two months late, since an export to
# a dataset in the US or the EU begins with the month before.
_MAX_EXPORT_DELAY: Final = timedelta(days=70)
_TABLE: Final = re.compile(rf"({PROJECT})\.(\w{{1,1024}})\.([\w-]{{1,1024}})", re.ASCII)
_EXAMPLE: Final = "my-project.billing.gcp_billing_export_v1_0123AB_4567CD_89EF01"
# Kinds by SKU description. SKUs of machines end in "running in PLACE"; so do commitments.
_KINDS: Final[tuple[Kind, ...]] = (
    (re.compile(r"^(?!Commitment\b).* running in "), BillPart.INSTANCES, "instances"),
    (re.compile(r"\bPD Capacity\b|\bHyperdisk\b"), BillPart.EXTRAS, "disks"),
    (re.compile(r"\b(External|Static) IP Charge\b", re.IGNORECASE), BillPart.EXTRAS, "addresses"),
    # The ledger's extras include the NAT's uptime for each instance, but not its traffic.
    (re.compile(r"\bCloud NAT Gateway Uptime\b", re.IGNORECASE), BillPart.EXTRAS, "NAT"),
    (re.compile(r"\bCloud NAT\b", re.IGNORECASE), BillPart.BESIDE, "NAT"),
    (re.compile(r"\bLocal Storage\b"), BillPart.BESIDE, "local SSDs"),
    (re.compile(r"\b(Data Transfer|Egress|Ingress)\b"), BillPart.BESIDE, "transfer"),
)
# Credits that reduce the cost of usage. Others pay for usage, or offset a commitment's own cost.
_DISCOUNTS: Final = (
    "COMMITTED_USAGE_DISCOUNT",
    "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE",
    "DISCOUNT",
    "FREE_TIER",
    "SUBSCRIPTION_BENEFIT",
    "SUSTAINED_USAGE_DISCOUNT",
)
# Amounts are in the account's currency; `currency_conversion_rate` is the amount of that currency
# in a US dollar. A line is in the partition of the day of its export.
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
# Error type and hint by BigQuery's reason.
_HINTS: Final[dict[str, tuple[type[ProviderError], str]]] = {
    "accessDenied": (
        PermissionDenied,
        "your own credentials need bigquery.jobs.create in {payer} (roles/bigquery.jobUser), and "
        "bigquery.tables.getData on the dataset (roles/bigquery.dataViewer)",
    ),
    "accessNotConfigured": (
        PermissionDenied,
        "enable bigquery.googleapis.com in {payer}, or name another project with --project",
    ),
    "bytesBilledLimitExceeded": (QuotaExceeded, "request fewer days with --from and --to"),
    "invalidQuery": (
        NotFound,
        "--table: name the standard or detailed export itself, not a view or copy of it, such "
        f"as {_EXAMPLE}",
    ),
    "notFound": (
        NotFound,
        f"--table: name the export's table, such as {_EXAMPLE}: it exists some hours after the "
        "export was enabled",
    ),
}
# Reason whose hint applies to other refusals, by error type.
_DEFAULT_REASONS: Final[dict[type[ProviderError], str]] = {
    PermissionDenied: "accessDenied",
    NotFound: "invalidQuery",
}


@dataclass(frozen=True, slots=True)
class ExportTable:
    """Table of a Cloud Billing export; `project` is the project that owns it."""

    project: str
    name: str


def is_of_gcp(offer_id: str) -> bool:
    """Return whether an offer of the ledger is an offer of Compute Engine."""
    return is_pool_offer(offer_id, REGION)


def parse_table(text: str) -> ExportTable:
    """Return the table that ``PROJECT.DATASET.TABLE`` names.

    Raises:
        SpecError: the text is not of this form.
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        raise SpecError(f"{text!r} is not a table: write it like {_EXAMPLE}", "--table")
    return ExportTable(match[1], text)


def parse_payer(text: str | None, table: ExportTable) -> str:
    """Return the project that pays for the query; the table's project by default.

    Raises:
        SpecError: the text is not a project's id.
    """
    if text is None:
        return table.project
    if re.fullmatch(PROJECT, text) is None:
        raise SpecError(f"{text!r} is not a project id: write it like my-project-123", "--project")
    return text


def open_report(table: ExportTable, payer: str, clock: Clock) -> CostReport:
    """Return a report on the export with the credentials of the environment.

    BIGQUERY_EMULATOR_HOST may name an emulator to use instead of BigQuery.

    Raises:
        PermissionDenied: the environment has no usable credentials.
    """
    session = open_session(os.environ.get("BIGQUERY_EMULATOR_HOST") or None)
    return CostReport(table, payer, session, clock)


class CostReport:
    """Costs from the export in `table`; the project `payer` pays for the queries."""

    def __init__(self, table: ExportTable, payer: str, session: Session, clock: Clock) -> None:
        self._table = table
        self._payer = payer
        self._bigquery = BigQuery(payer, session, clock)
        self._billed_bytes = 0

    @property
    def asked_usd(self) -> Decimal:
        """Cost of the queries made so far, in US dollars, at BigQuery's price in the US."""
        return self._billed_bytes * _USD_PER_TIB / 2**40

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """Return the costs of resources with the deployment's labels, by day (UTC).

        `first` and `last` are the first and the last day.

        Raises:
            PermissionDenied: the credentials do not allow it, or the project has no BigQuery.
            NotFound: the table does not exist or is not an export.
            QuotaExceeded: the query would read too much.
            ProviderError: BigQuery does not answer, or its reply can't be read.
        """
        try:
            result = self._bigquery.find(self._query(deployment, first, last))
        except ProviderError as error:
            raise self._with_hint(error) from error
        self._billed_bytes += result.billed_bytes
        with readable(self._table.name):
            for row in result.rows:
                self._require_rate(row)
            return tuple(_cost(row) for row in result.rows)

    def _query(self, deployment: str, first: date, last: date) -> Query:
        discounts = ", ".join(f"'{discount}'" for discount in _DISCOUNTS)
        parameters: dict[str, str | date] = {
            "own_label": _OWN_LABEL,
            "host_label": _HOST_LABEL,
            "deployment": deployment,
            "first": first,
            "last": last,
            "until": last + _MAX_EXPORT_DELAY,
        }
        text = _SQL.replace("DISCOUNTS", discounts).replace("TABLE", self._table.name)
        return Query(text, parameters, _MAX_BYTES)

    def _require_rate(self, row: Row) -> None:
        """Check that a row in another currency has an exchange rate to US dollars.

        Raises:
            NotFound: the row has no rate.
        """
        if row["without_rate"] is not None:
            raise NotFound(
                f"{self._table.name}: lines of {row['day']} in {row['without_rate']} have no "
                "currency_conversion_rate, but the ledger is in USD: leave that day out with "
                "--from and --to"
            )

    def _with_hint(self, error: ProviderError) -> ProviderError:
        """Return the error with a hint for the person's own credentials, not the controller's."""
        cause = error.__cause__
        if not isinstance(cause, GoogleAPICallError) or cause.code == HTTPStatus.UNAUTHORIZED:
            return error
        reason = reason_in(cause.errors)
        hint_reason = reason if reason in _HINTS else _DEFAULT_REASONS.get(type(error))
        if hint_reason is None:
            return error
        kind, hint = _HINTS[hint_reason]
        text = told(reason, message_of(cause), Call(self._payer, "jobs.query"))
        return kind(f"{text}: {hint.format(payer=self._payer)}")


def _cost(row: Row) -> AccountCost:
    day, usd = date.fromisoformat(str(row["day"])), amount_of(str(row["usd"]))
    if row["label_key"] == _HOST_LABEL:
        return AccountCost(day, BillPart.BESIDE, HOST, usd)
    service = row["service_name"] or "other services"
    part, name = part_of(row["sku_name"] or "", service, _KINDS)
    return AccountCost(day, part, name, usd)
