"""What the account was billed for a deployment, as AWS Cost Explorer tells it.

It is asked by people, with their own credentials, and not by the controller: each call costs
$0.01. It knows tags that were activated as cost allocation tags, and of them what is tagged.
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
from providers.cloud.stock import is_ware
from providers.cloud.tags import DEPLOYMENT_TAG, HOST_TAG

USD_A_CALL: Final = Decimal("0.01")
_CALL: Final = Call("us-east-1", "GetCostAndUsage")  # one endpoint for all regions
# What a use costs with the account's commitments spread over it. Credits hide what was used.
_METRIC: Final = "AmortizedCost"
_NO_USE: Final = ("Credit", "Refund", "Tax")
_FAR_TOO_MANY_PAGES: Final = 200
# By AWS's codes of usage, of which most begin with the region's: USW2-BoxUsage:g5.xlarge.
_KINDS: Final[tuple[Kind, ...]] = (
    (re.compile(r"\b(Box|Spot|Dedicated)Usage\b"), BillPart.INSTANCES, "instances"),
    (re.compile(r"\bEBS:Volume"), BillPart.EXTRAS, "volumes"),
    (re.compile(r"\bPublicIPv4:"), BillPart.EXTRAS, "addresses"),
    (re.compile(r"\bNatGateway-"), BillPart.BESIDE, "NAT gateways"),
    (re.compile(r"\bVpcEndpoint-"), BillPart.BESIDE, "VPC endpoints"),
    (re.compile(r"\bDataTransfer-|-AWS-(In|Out)-Bytes"), BillPart.BESIDE, "transfer"),
)


def is_of_aws(offer_id: str) -> bool:
    """Whether the ledger's offer is one of EC2's."""
    return is_ware(offer_id, REGION)


class CostReport:
    """The account of `session`; `asked_usd` is what its answers have cost so far.

    `endpoint_url` is where Cost Explorer is, if not at AWS; `attempts` how often botocore sends
    a call that fails.
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
        """What asking has cost so far."""
        return self._calls * USD_A_CALL

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """What these days (UTC), the last one included, cost of what has the deployment's tags.

        Raises:
            PermissionDenied: the credentials do not allow it, or the account has no Cost Explorer.
            ProviderError: it does not answer, or not so that it can be read.
        """
        used = list(self._lines(DEPLOYMENT_TAG, deployment, first, last))
        host = [
            AccountCost(line.day, BillPart.BESIDE, HOST, line.usd, line.is_estimated)
            for line in self._lines(HOST_TAG, deployment, first, last)
        ]
        return (*used, *host)

    def _lines(self, tag: str, value: str, first: date, last: date) -> Iterator[AccountCost]:
        token: dict[str, str] = {}
        for _ in range(_FAR_TOO_MANY_PAGES):
            reply = self._asked(_query(tag, value, first, last) | token)
            with readable(str(_CALL)):
                yield from [line for told in reply["ResultsByTime"] for line in _of_day(told)]
                if not reply.get("NextPageToken"):
                    return
                token = {"NextPageToken": str(reply["NextPageToken"])}
        raise Unavailable(f"{_CALL}: its pages do not end")

    def _asked(self, query: Mapping[str, Any]) -> Mapping[str, Any]:
        self._calls += 1
        try:
            reply: Mapping[str, Any] = self._client.get_cost_and_usage(**query)
        except CALL_ERRORS as error:
            raise _meant(error) from error
        return reply


def _query(tag: str, value: str, first: date, last: date) -> dict[str, Any]:
    no_use = {"Dimensions": {"Key": "RECORD_TYPE", "Values": list(_NO_USE)}}
    return {
        "TimePeriod": {"Start": first.isoformat(), "End": (last + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": [_METRIC],
        "GroupBy": [{"Type": "DIMENSION", "Key": key} for key in ("SERVICE", "USAGE_TYPE")],
        "Filter": {"And": [{"Tags": {"Key": tag, "Values": [value]}}, {"Not": no_use}]},
    }


def _of_day(told: Mapping[str, Any]) -> Iterator[AccountCost]:
    day = date.fromisoformat(told["TimePeriod"]["Start"])
    for group in told["Groups"]:
        service, usage = group["Keys"]
        part, name = part_of(usage, service, _KINDS)
        usd = _usd(group["Metrics"][_METRIC])
        yield AccountCost(day, part, name, usd, bool(told.get("Estimated")))


def _usd(amount: Mapping[str, str]) -> Decimal:
    if amount["Unit"] != "USD":
        raise ValueError(f"the account is billed in {amount['Unit']}, the ledger in USD")
    return amount_of(amount["Amount"])


def _meant(error: Exception) -> ProviderError:
    if error_code(error).startswith("AccessDenied"):
        return PermissionDenied(
            f"{' '.join(str(error).split())}: your own credentials need ce:GetCostAndUsage, and "
            "the account has to have Cost Explorer enabled"
        )
    return provider_error(error, _CALL)
