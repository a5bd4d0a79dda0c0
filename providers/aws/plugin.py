"""Plug-in of the provider `aws`: opens its instances, job storage and bill."""

from __future__ import annotations

import os
import re
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.extras import from_extras
from autoscaler.spec.forms import Form
from providers.base import Provider
from providers.bill import Account, BillSource, BillWords
from providers.blocks import BlockMarket
from providers.cloud.following import FollowingProvider, PoolsSource
from providers.cloud.hosts import require_reachable
from providers.cloud.known_prices import KnownPrices
from providers.plugin import ControllerContext, ProviderPlugin
from providers.storage import JobStorage

_NAME: Final = "aws"
_BILL: Final = BillWords(
    cloud="AWS",
    tag="castor:deployment={deployment}",
    extras="volumes and addresses",
    nothing="activate castor:deployment and castor:controller-of as cost allocation tags "
    "(Billing, Cost allocation tags; they appear after a day, and can be backfilled), or name "
    "another deployment, or set another AWS_PROFILE.",
    less="days before the tag was activated, and spot instances that EC2 reclaimed in their first "
    "hour, which is free.",
    asked="The query to Cost Explorer cost {usd}.",
)


class AwsPlugin(ProviderPlugin):
    """EC2, S3 and Cost Explorer. Pools are in a file, or in the SSM parameter ``ssm:/NAME``."""

    def pools_form(self) -> type[Form]:
        """Return the form of pools; see `ProviderPlugin.pools_form`."""
        from providers.aws.settings import AwsSettings

        return AwsSettings

    def open_provider(self, source: str, context: ControllerContext) -> Provider:
        """Return the provider of EC2; see `ProviderPlugin.open_provider`."""
        with from_extras(f"server,{_NAME}", "--pools"):
            from providers.aws.provider import AwsProvider
            from providers.aws.reading import fetch_settings, open_session, parse_settings
            from providers.aws.settings import AwsSettings, CallTimeouts
            from providers.cloud.price_list import read_price_table
        session, patience = open_session(), CallTimeouts()
        prices = KnownPrices(context.prices_file(_NAME))

        def connect(settings: AwsSettings) -> AwsProvider:
            require_reachable(context.host, _endpoint_url(settings.endpoint_url))
            table = read_price_table(settings.prices_from)
            return AwsProvider(
                settings,
                context.controller,
                context.clock,
                session,
                patience=patience,
                table=table,
                prices=prices,
            )

        pools = PoolsSource(source, context.pools_cache, fetch_settings, parse_settings)
        return FollowingProvider(pools, connect, context.clock, patience.visible_seconds)

    def open_storage(self, source: str, context: ControllerContext) -> JobStorage:
        """Return the storage in S3; see `ProviderPlugin.open_storage`."""
        with from_extras(f"server,{_NAME}", "--pools"):
            from providers.aws.reading import fetch_settings, open_session, parse_settings
            from providers.aws.storage import S3JobStorage

        pools = PoolsSource(source, context.pools_cache, fetch_settings, parse_settings)
        settings = pools.read_or_recall()
        endpoint_url = _endpoint_url(settings.endpoint_url)
        settings = settings.model_copy(update={"endpoint_url": endpoint_url})
        return S3JobStorage(settings, open_session(), context.clock)

    def open_block_market(self, source: str, clock: Clock) -> BlockMarket:
        """Return the market of Capacity Blocks; see `ProviderPlugin.open_block_market`."""
        with from_extras(f"server,{_NAME}", "buy"):
            from providers.aws.blocks import CapacityBlocks
            from providers.aws.reading import open_session, read_settings

        session = open_session()
        settings = read_settings(source, session)
        endpoint_url = _endpoint_url(settings.endpoint_url)
        settings = settings.model_copy(update={"endpoint_url": endpoint_url})
        return CapacityBlocks(settings, session, clock)

    def shell_command(self, offer_id: str, cloud_id: str) -> tuple[str, ...] | None:
        """Return the command of Session Manager; see `ProviderPlugin.shell_command`."""
        from providers.aws.settings import REGION
        from providers.cloud.stock import is_pool_offer

        if not is_pool_offer(offer_id, REGION):
            return None
        region = re.match(REGION, offer_id.split("/")[2])
        assert region is not None  # an offer of this cloud
        return ("aws", "ssm", "start-session", "--region", region[0], "--target", cloud_id)

    def open_account(self, source: BillSource, clock: Clock) -> Account:
        """Return the AWS account of the default credentials.

        Raises:
            SpecError: the extra aws is not installed, or `source` names a table or a project.
        """
        for option, value in (("--table", source.table), ("--project", source.payer)):
            if value is not None:
                raise SpecError("is for Google Cloud only: leave it out", option)
        with from_extras(_NAME, "reconcile", ", or name Google Cloud's export with --table"):
            from providers.aws.cost_report import CostReport, is_of_aws
        return Account(_BILL, is_of_aws, CostReport)


def _endpoint_url(url: str | None) -> str | None:
    return url or os.environ.get("AWS_ENDPOINT_URL")
