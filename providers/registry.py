"""Registry of providers of clouds: those of this package and those of installed plug-ins."""

from __future__ import annotations

from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.plug_ins import PlugInListing, PlugIns
from providers.plugin import ProviderPlugin

ENTRY_POINTS: Final = "castor.providers"

_PROVIDERS: Final = PlugIns(
    ENTRY_POINTS,
    {"aws": "providers.aws.plugin:AwsPlugin", "gcp": "providers.gcp.plugin:GcpPlugin"},
    ProviderPlugin,
)
# Provider by the first part of an address; addresses of other providers begin with their names.
_OF_SCHEME: Final = {"ssm": "aws", "gs": "gcp"}


def providers() -> tuple[PlugInListing, ...]:
    """Return all providers by name; one that fails to import is listed with its error."""
    return _PROVIDERS.listings()


def provider_at(source: str) -> str | None:
    """Return the name of the provider whose address `source` is; None for a file."""
    scheme, colon, _ = source.partition(":")
    name = _OF_SCHEME.get(scheme, scheme)
    return name if colon and name in _PROVIDERS else None


def plugin_of(name: str, field: str) -> ProviderPlugin:
    """Return the plug-in of the provider of that name.

    Raises:
        SpecError: no provider has the name, or its import fails; the error names `field`.
    """
    if name not in _PROVIDERS:
        raise SpecError(f'"{name}" is unknown: write {_choices()}', field)
    plugin: ProviderPlugin = _PROVIDERS.load(name, field)()
    return plugin


def _choices() -> str:
    """Return the names to choose from, and the errors of plug-ins that can't be used."""
    listings = providers()
    *names, last = [listing.name for listing in listings if listing.trouble is None]
    troubles = [
        f"; {listing.name} can't be used: {listing.trouble}"
        for listing in listings
        if listing.trouble is not None
    ]
    return f"{', '.join(names)} or {last}{''.join(troubles)}"
