"""What an instance is to find at its start, through S3.

An instant fleet can't be given user data of its own, and user data that differed from one try to
the next would make EC2 refuse the retry. So the launch template's user data, the same for all,
takes the instance's own from ``PLACE/TOKEN``, where TOKEN is its tag ``castor:token``.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from providers.aws.calls import RegionCalls
from providers.aws.settings import AwsSale, AwsSettings


class BucketParcels:
    """Objects under the place that the settings give for each region. A retry overwrites."""

    def __init__(self, settings: AwsSettings, calls: Mapping[str, RegionCalls]) -> None:
        self._settings = settings
        self._calls = calls

    def put(self, sale: AwsSale, token: str, user_data: str) -> None:
        """Write it down before the launch.

        Raises:
            ProviderError: nothing was launched, and nothing is to be.
        """
        region = sale.pool.region
        place = urlsplit(self._settings.regions[region].user_data)
        key = f"{place.path.strip('/')}/{token}"
        self._calls[region].put(place.netloc, key, user_data)
