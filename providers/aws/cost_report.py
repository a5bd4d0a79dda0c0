"""Account's costs of a deployment, from AWS Cost Explorer.

People run the report with their own credentials; the controller does not. Each call costs $0.01.
Cost Explorer reports only resources whose tags are activated as cost allocation tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

import boto3
from botocore.config import Config

from autoscaler.domain.errors import PermissionDenied, ProviderError, Unavailable
from autoscaler.domain.spending import AccountCost, BillPart
from providers.aws.errors import CALL_ERRORS, Call, error_code, provider_error
from providers.aws.reading import open_session
from providers.aws.settings import REGION
from providers.cloud.bills import HOST, Kind, amount_of, part_of
from providers.cloud.replies import readable
from providers.cloud.stock import is_pool_offer
from providers.cloud.tags import DEPLOYMENT_TAG, HOST_TAG

USD_A_CALL: Final = Decimal("0.01")
_CALL: Final = Call("us-east-1", "GetCostAndUsage")  # one endpoint for all regions
# Cost of usage with the account's commitments spread over it. Credits would hide the cost.
_METRIC: Final = "AmortizedCost"
_NON_USAGE_TYPES: Final = ("Credit", "Refund", "Tax")
_MAX_PAGES: Final = 200
# Kinds by AWS's usage type, which mostly begins with a region code: USW2-BoxUsage:g5.xlarge.
_KINDS: Final[tuple[Kind, ...]] = (
    (re.compile(r"\b(Box|Spot|Dedicated)Usage\b"), BillPart.INSTANCES, "instances"),
    (re.compile(r"\bEBS:Volume"), BillPart.EXTRAS, "volumes"),
    (re.compile(r"\bPublicIPv4:"), BillPart.EXTRAS, "addresses"),
    (re.compile(r"\bNatGateway-"), BillPart.BESIDE, "NAT gateways"),
    (re.compile(r"\bVpcEndpoint-"), BillPart.BESIDE, "VPC endpoints"),
    (re.compile(r"\bDataTransfer-|-AWS-(In|Out)-Bytes"), BillPart.BESIDE, "transfer"),
)


def is_of_aws(offer_id: str) -> bool:
    """Return whether an offer of the ledger is an offer of EC2."""
    return is_pool_offer(offer_id, REGION)


class CostReport:
    """Costs of the account of `session`.

    `endpoint_url` is Cost Explorer's endpoint; None means AWS's own. `attempts` is the maximum
    number of tries of a call.
    """

    def __init__(
        self,
        session: boto3.session.Session | None = None,
        endpoint_url: str | None = None,
        attempts: int = 3,
    ) -> None:
        self._client = (session or open_session()).client(
            "ce",
            region_name=_CALL.region,
            endpoint_url=endpoint_url,
            config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
        )
        self._calls = 0

    @property
    def asked_usd(self) -> Decimal:
        """Cost of the calls made so far, in US dollars."""
        return self._calls * USD_A_CALL

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """Return the costs of resources with the deployment's tags, by day (UTC), `last` included.

        Raises:
            PermissionDenied: the credentials do not allow it, or the account has no Cost Explorer.
            ProviderError: Cost Explorer does not answer, or its reply can't be read.
        """
        resources = list(self._lines(DEPLOYMENT_TAG, deployment, first, last))
        host = [
            AccountCost(line.day, BillPart.BESIDE, HOST, line.usd, line.is_estimated)
            for line in self._lines(HOST_TAG, deployment, first, last)
        ]
        return (*resources, *host)

    def _lines(self, tag: str, value: str, first: date, last: date) -> Iterator[AccountCost]:
        token: dict[str, str] = {}
        for _ in range(_MAX_PAGES):
            reply = self._call(_query(tag, value, first, last) | token)
            with readable(str(_CALL)):
                yield from [
                    line
                    for day_result in reply["ResultsByTime"]
                    for line in _lines_of_day(day_result)
                ]
                if not reply.get("NextPageToken"):
                    return
                token = {"NextPageToken": str(reply["NextPageToken"])}
        raise Unavailable(f"{_CALL}: the reply has more than {_MAX_PAGES} pages")

    def _call(self, query: Mapping[str, Any]) -> Mapping[str, Any]:
        self._calls += 1
        try:
            reply: Mapping[str, Any] = self._client.get_cost_and_usage(**query)
        except CALL_ERRORS as error:
            raise _translate(error) from error
        return reply


def _query(tag: str, value: str, first: date, last: date) -> dict[str, Any]:
    non_usage = {"Dimensions": {"Key": "RECORD_TYPE", "Values": list(_NON_USAGE_TYPES)}}
    return {
        "TimePeriod": {"Start": first.isoformat(), "End": (last + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": [_METRIC],
        "GroupBy": [{"Type": "DIMENSION", "Key": key} for key in ("SERVICE", "USAGE_TYPE")],
        "Filter": {"And": [{"Tags": {"Key": tag, "Values": [value]}}, {"Not": non_usage}]},
    }


def _lines_of_day(day_result: Mapping[str, Any]) -> Iterator[AccountCost]:
    day = date.fromisoformat(day_result["TimePeriod"]["Start"])
    for group in day_result["Groups"]:
        service, usage = group["Keys"]
        part, name = part_of(usage, service, _KINDS)
        usd = _usd(group["Metrics"][_METRIC])
        yield AccountCost(day, part, name, usd, bool(day_result.get("Estimated")))


def _usd(amount: Mapping[str, str]) -> Decimal:
    if amount["Unit"] != "USD":
        raise ValueError(f"the account is billed in {amount['Unit']}, the ledger in USD")
    return amount_of(amount["Amount"])


def _translate(error: Exception) -> ProviderError:
    if error_code(error).startswith("AccessDenied"):
        return PermissionDenied(
            f"{' '.join(str(error).split())}: allow ce:GetCostAndUsage to your own credentials, "
            "and enable Cost Explorer in the account"
        )
    return provider_error(error, _CALL)
