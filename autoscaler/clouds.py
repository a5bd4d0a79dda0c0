"""Providers and job storage of a controller: this machine, and pools in AWS and Google Cloud.

A source of pools is a file, or the SSM parameter or bucket object that Terraform wrote.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.extras import from_extras
from autoscaler.spec.form_file import read_text
from autoscaler.spec.located_yaml import read_yaml
from providers.base import Provider
from providers.cloud.following import FollowingProvider, PoolsSource
from providers.cloud.hosts import is_any, is_here, is_url_here
from providers.cloud.known_prices import KnownPrices
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from providers.storage import JobStorage

AWS: Final = "aws"
GCP: Final = "gcp"
_CLOUD_OF_PREFIX: Final = {"ssm:": AWS, "gs:": GCP}
_POOLS_FOLDER: Final = "pools"
_STORAGE_PLACE_FILE: Final = "place-of-jobs"


def open_providers(
    local: LocalSettings | None,
    sources: Sequence[str],
    state: Path,
    host: str,
    controller: str,
    clock: Clock,
) -> dict[str, Provider]:
    """Return the providers by name, as offers name them.

    Args:
        local: the devices of this machine to offer; None offers none.
        sources: sources of pools: files, ``ssm:/NAME`` or ``gs://BUCKET/NAME``.
        state: the controller's state directory.
        host: the address at which instances reach the controller.
        controller: the id of the controller, which owns the instances it launches.
        clock: the clock.

    Raises:
        SpecError: a source can't be read or used, or instances can't reach `host`.
        ProviderError: the cloud does not return the pools, and no copy of them is cached.
    """
    providers: dict[str, Provider] = {}
    if local is not None:
        providers["local"] = LocalProvider(state / "local", controller, local, clock)
    for source in sources:
        cloud = cloud_of(source)
        if cloud in providers:
            raise SpecError(
                f"{source}: pools of {cloud} were named before: merge the two sources", "--pools"
            )
        open_cloud = _open_gcp if cloud == GCP else _open_aws
        providers[cloud] = open_cloud(source, state, host, controller, clock)
    return providers


def open_storage(sources: Sequence[str], state: Path, clock: Clock) -> JobStorage | None:
    """Return the storage of jobs' files; None without pools in a cloud.

    A job may move between clouds, so all files are in the cloud of the first source. The place
    stays the same as long as the state directory exists, because saved files are read from there.

    Raises:
        SpecError: a source can't be read, names no storage, or names another storage than before.
        ProviderError: the cloud does not return the pools, or there are no credentials.
    """
    if not sources:
        return None
    first = sources[0]
    open_cloud_storage = _open_gcp_storage if cloud_of(first) == GCP else _open_aws_storage
    storage = open_cloud_storage(first, state / _POOLS_FOLDER, clock)
    _require_place(storage.jobs.place, first, state / _STORAGE_PLACE_FILE)
    return storage


def cloud_of(source: str) -> str:
    """Return the cloud of a source: by the prefix of its address, or by ``cloud`` in the file.

    Raises:
        SpecError: the file can't be read, or names an unknown cloud.
    """
    for prefix, cloud in _CLOUD_OF_PREFIX.items():
        if source.startswith(prefix):
            return cloud
    document = read_yaml(read_text(Path(source)), source).value
    cloud_name = document.get("cloud", AWS) if isinstance(document, dict) else AWS
    if cloud_name not in (AWS, GCP):
        raise SpecError(
            f'{source}: cloud: "{cloud_name}" is unknown: write {AWS} or {GCP}', "--pools"
        )
    return str(cloud_name)


def _open_aws_storage(source: str, pools_cache: Path, clock: Clock) -> JobStorage:
    with _from_extra(AWS):
        from providers.aws.reading import fetch_settings, open_session, parse_settings
        from providers.aws.storage import S3JobStorage

    settings = PoolsSource(source, pools_cache, fetch_settings, parse_settings).read_or_recall()
    endpoint_url = settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL")
    settings = settings.model_copy(update={"endpoint_url": endpoint_url})
    return S3JobStorage(settings, open_session(), clock)


def _open_gcp_storage(source: str, pools_cache: Path, clock: Clock) -> JobStorage:
    with _from_extra(GCP):
        from providers.gcp.reading import fetch_settings, parse_settings
        from providers.gcp.session import open_session
        from providers.gcp.storage import GcsJobStorage

    settings = PoolsSource(source, pools_cache, fetch_settings, parse_settings).read_or_recall()
    return GcsJobStorage(settings, open_session(settings.endpoint_url), clock)


def _open_aws(source: str, state: Path, host: str, controller: str, clock: Clock) -> Provider:
    with _from_extra(AWS):
        from providers.aws.provider import AwsProvider
        from providers.aws.reading import fetch_settings, open_session, parse_settings
        from providers.aws.settings import AwsSettings, CallTimeouts
        from providers.cloud.price_list import read_price_table
    session, patience = open_session(), CallTimeouts()
    prices = KnownPrices(_prices_file(state, AWS))

    def connect(settings: AwsSettings) -> AwsProvider:
        _require_reachable(host, settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
        table = read_price_table(settings.prices_from)
        return AwsProvider(
            settings, controller, clock, session, patience=patience, table=table, prices=prices
        )

    pools = PoolsSource(source, state / _POOLS_FOLDER, fetch_settings, parse_settings)
    return FollowingProvider(pools, connect, clock, patience.visible_seconds)


def _open_gcp(source: str, state: Path, host: str, controller: str, clock: Clock) -> Provider:
    with _from_extra(GCP):
        from providers.cloud.price_list import read_price_table
        from providers.gcp.provider import GcpProvider
        from providers.gcp.reading import fetch_settings, parse_settings
        from providers.gcp.records import Records
        from providers.gcp.session import open_session
        from providers.gcp.settings import CallTimeouts, GcpSettings
    patience = CallTimeouts()
    prices = KnownPrices(_prices_file(state, GCP))
    records = Records(state / "gcp.db", controller)

    def connect(settings: GcpSettings) -> GcpProvider:
        _require_reachable(host, settings.endpoint_url)
        session = open_session(settings.endpoint_url)
        table = read_price_table(settings.prices_from)
        return GcpProvider(
            settings,
            controller,
            clock,
            session,
            records,
            patience=patience,
            table=table,
            prices=prices,
        )

    pools = PoolsSource(source, state / _POOLS_FOLDER, fetch_settings, parse_settings)
    return FollowingProvider(pools, connect, clock, patience.visible_seconds)


def _prices_file(state: Path, cloud: str) -> Path:
    """Return the file with the last known prices of a cloud, used for pools that were removed."""
    return state / "prices" / f"{cloud}.json"


def _require_place(place: str, source: str, record: Path) -> None:
    """Check that jobs' storage is where it was at the last start; record it at the first start.

    In another place jobs would find no checkpoints and would silently start from step 0.
    """
    before = record.read_text().strip() if record.exists() else ""
    if before not in ("", place):
        raise SpecError(
            f"{source}: jobs have their files in {before}, but this source names {place}: list "
            f"the pools that use {before} first, or delete {record} if no job needs its files",
            "--pools",
        )
    if not before:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{place}\n")


def _require_reachable(host: str, endpoint_url: str | None) -> None:
    """Refuse a host that instances can't reach: they would be paid for until their lease ends."""
    if is_any(host) or (is_here(host) and not is_url_here(endpoint_url)):
        raise SpecError(
            f"instances can't reach {host}: name the address of this host in their network",
            "--host",
        )


def _from_extra(cloud: str) -> AbstractContextManager[None]:
    """Return a context for imports which need the extra named like the cloud."""
    return from_extras(f"server,{cloud}", "--pools")
