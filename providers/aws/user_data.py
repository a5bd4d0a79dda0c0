"""User data of instances, stored in S3.

An instant fleet can't carry user data of its own. User data that differed between tries would also
make EC2 refuse the retry. All instances therefore share the launch template's user data, which
reads the instance's own from ``PLACE/TOKEN``. TOKEN is the instance's tag ``castor:token``.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from providers.aws.calls import RegionCalls
from providers.aws.settings import AwsSale, AwsSettings


class BucketUserData:
    """User data as S3 objects under each region's location in the settings. A retry overwrites."""

    def __init__(self, settings: AwsSettings, calls: Mapping[str, RegionCalls]) -> None:
        self._settings = settings
        self._calls = calls

    def put(self, sale: AwsSale, token: str, user_data: str) -> None:
        """Write an instance's user data before its launch.

        Raises:
            ProviderError: the user data was not written; nothing may be launched.
        """
        region = sale.pool.region
        location = urlsplit(self._settings.regions[region].user_data)
        key = f"{location.path.strip('/')}/{token}"
        region_of_bucket = self._region_of(location.netloc) or region
        self._calls[region_of_bucket].put(location.netloc, key, user_data)

    def _region_of(self, bucket: str) -> str | None:
        """Return the region of jobs' bucket, None of another: S3 serves a bucket in one region."""
        for name, region in self._settings.regions.items():
            if region.jobs is not None and urlsplit(region.jobs).netloc == bucket:
                return name
        return None
