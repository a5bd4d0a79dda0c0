"""Plug-in of the provider `gcp`: opens its instances, job storage and bill."""

from __future__ import annotations

from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.extras import from_extras
from autoscaler.spec.forms import Form
from providers.base import Provider
from providers.bill import Account, BillSource, BillWords
from providers.cloud.following import FollowingProvider, PoolsSource
from providers.cloud.hosts import require_reachable
from providers.cloud.known_prices import KnownPrices
from providers.plugin import ControllerContext, ProviderPlugin
from providers.storage import JobStorage

_NAME: Final = "gcp"
_BILL: Final = BillWords(
    cloud="Google",
    tag="castor-deployment={deployment}",
    extras="disks and addresses",
    nothing="billing lines are exported up to a day late, and only since the export was enabled; "
    "wait a day, or name another deployment, or the table of the billing account that pays for "
    "its project.",
    less="days before the export was enabled, lines that are not exported yet, and discounts for "
    "sustained or committed use.",
    asked="The query to BigQuery cost {usd}; a month's first TiB of queries is free.",
)


class GcpPlugin(ProviderPlugin):
    """Compute Engine, Cloud Storage and BigQuery.

    Pools are in a file, or in the object ``gs://BUCKET/NAME``.
    """

    def pools_form(self) -> type[Form]:
        """Return the form of pools; see `ProviderPlugin.pools_form`."""
        from providers.gcp.settings import GcpSettings

        return GcpSettings

    def open_provider(self, source: str, context: ControllerContext) -> Provider:
        """Return the provider of Compute Engine; see `ProviderPlugin.open_provider`."""
        with from_extras(f"server,{_NAME}", "--pools"):
            from providers.cloud.price_list import read_price_table
            from providers.gcp.provider import GcpProvider
            from providers.gcp.reading import fetch_settings, parse_settings
            from providers.gcp.records import Records
            from providers.gcp.session import open_session
            from providers.gcp.settings import CallTimeouts, GcpSettings
        patience = CallTimeouts()
        prices = KnownPrices(context.prices_file(_NAME))
        records = Records(context.state / "gcp.db", context.controller)

        def connect(settings: GcpSettings) -> GcpProvider:
            require_reachable(context.host, settings.endpoint_url)
            session = open_session(settings.endpoint_url)
            table = read_price_table(settings.prices_from)
            return GcpProvider(
                settings,
                context.controller,
                context.clock,
                session,
                records,
                patience=patience,
                table=table,
                prices=prices,
            )

        pools = PoolsSource(source, context.pools_cache, fetch_settings, parse_settings)
        return FollowingProvider(pools, connect, context.clock, patience.visible_seconds)

    def open_storage(self, source: str, context: ControllerContext) -> JobStorage:
        """Return the storage in Cloud Storage; see `ProviderPlugin.open_storage`."""
        with from_extras(f"server,{_NAME}", "--pools"):
            from providers.gcp.reading import fetch_settings, parse_settings
            from providers.gcp.session import open_session
            from providers.gcp.storage import GcsJobStorage

        pools = PoolsSource(source, context.pools_cache, fetch_settings, parse_settings)
        settings = pools.read_or_recall()
        return GcsJobStorage(settings, open_session(settings.endpoint_url), context.clock)

    def shell_command(self, offer_id: str, cloud_id: str) -> tuple[str, ...] | None:
        """Return the command of gcloud; see `ProviderPlugin.shell_command`."""
        from providers.cloud.stock import is_pool_offer
        from providers.gcp.settings import REGION

        if not is_pool_offer(offer_id, REGION):
            return None
        zone, _, name = cloud_id.partition("/")
        return ("gcloud", "compute", "ssh", name, "--zone", zone, "--tunnel-through-iap")

    def open_account(self, source: BillSource, clock: Clock) -> Account:
        """Return the account whose bill is exported to a BigQuery table.

        `source.table` is ``PROJECT.DATASET.TABLE``. Without `source.payer` the table's project
        pays for the query.

        Raises:
            SpecError: the extra gcp is not installed, no table is named, or `source` is malformed.
        """
        if source.table is None:
            raise SpecError("is required: name the BigQuery export of Cloud Billing", "--table")
        with from_extras(_NAME, "--table", ", or leave it out to compare with AWS"):
            from providers.gcp.cost_report import (
                is_of_gcp,
                open_report,
                parse_payer,
                parse_table,
            )
        export = parse_table(source.table)
        payer = parse_payer(source.payer, export)
        return Account(_BILL, is_of_gcp, lambda: open_report(export, payer, clock))
