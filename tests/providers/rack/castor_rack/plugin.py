"""Plug-in of the provider `rack`."""

from __future__ import annotations

from pathlib import Path

from castor_rack.api import RackApi
from castor_rack.provider import RackProvider
from castor_rack.records import Records
from castor_rack.settings import RackSettings

from autoscaler.spec.form_file import read_document, validated
from providers.cloud.hosts import require_reachable
from providers.plugin import ControllerContext, ProviderPlugin


class RackPlugin(ProviderPlugin):
    """Machines of a rack. Pools are in a file."""

    def open_provider(self, source: str, context: ControllerContext) -> RackProvider:
        """Return the provider of the rack; see `ProviderPlugin.open_provider`."""
        settings = validated(read_document(Path(source)), RackSettings)
        require_reachable(context.host, settings.url)
        api = RackApi(settings.url, settings.token())
        records = Records(context.state / "rack.json")
        return RackProvider(settings, api, records, context.controller, context.clock)
