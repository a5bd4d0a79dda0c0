"""What an instance is to find at its start, through Cloud Storage.

Metadata of an instance can be read by whoever may list instances, and a launch that had any of its
own would have to repeat the template's, with which an instance starts. So the template's start
script, the same for all, takes the instance's own from ``PLACE/NAME``, where NAME is its name.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from providers.gcp.calls import ProjectCalls
from providers.gcp.settings import GcpSale, GcpSettings


class BucketParcels:
    """Objects under the place that the settings give for each region. A retry overwrites."""

    def __init__(self, settings: GcpSettings, calls: ProjectCalls) -> None:
        self._settings = settings
        self._calls = calls

    def put(self, sale: GcpSale, name: str, user_data: str) -> None:
        """Write it down before the launch.

        Raises:
            ProviderError: nothing was launched, and nothing is to be.
        """
        region = sale.pool.region
        place = urlsplit(self._settings.regions[region].user_data)
        self._calls.put(region, place.netloc, f"{place.path.strip('/')}/{name}", user_data)
