"""User data of instances, stored in Cloud Storage.

Every account that may list instances can read their metadata. A launch with its own metadata would
also have to repeat the template's. All instances therefore share the template's start script,
which reads the instance's own user data from ``PLACE/NAME``. NAME is the instance's name.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from providers.gcp.calls import ProjectCalls
from providers.gcp.settings import GcpSale, GcpSettings


class BucketUserData:
    """User data as objects under each region's location in the settings. A retry overwrites."""

    def __init__(self, settings: GcpSettings, calls: ProjectCalls) -> None:
        self._settings = settings
        self._calls = calls

    def put(self, sale: GcpSale, name: str, user_data: str) -> None:
        """Write an instance's user data before its launch.

        Raises:
            ProviderError: the user data was not written; nothing may be launched.
        """
        region = sale.pool.region
        location = urlsplit(self._settings.regions[region].user_data)
        self._calls.put(region, location.netloc, f"{location.path.strip('/')}/{name}", user_data)
