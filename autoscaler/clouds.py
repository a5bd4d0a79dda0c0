"""Opens the providers that a controller is told to buy from: this machine, and pools in clouds.

A source of pools is a file, or where Terraform wrote them.
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
_STORED_BY: Final = {"ssm:": AWS, "gs:": GCP}
_KEPT: Final = "pools"
_PLACE: Final = "place-of-jobs"


def open_providers(
    local: LocalSettings | None,
    sources: Sequence[str],
    state: Path,
    host: str,
    controller: str,
    clock: Clock,
) -> dict[str, Provider]:
    """The providers by the name that their offers tell.

    Args:
        local: what of this machine is sold, if any is.
        sources: where pools are: files, ``ssm:/NAME`` or ``gs://BUCKET/NAME``.
        state: the controller's directory.
        host: where instances are to find the controller.
        controller: the id that owns what is bought.
        clock: the time.

    Raises:
        SpecError: a source can't be read or used, or instances could not reach `host`.
        ProviderError: the cloud does not give the pools, and never gave them before.
    """
    found: dict[str, Provider] = {}
    if local is not None:
        found["local"] = LocalProvider(state / "local", controller, local, clock)
    for source in sources:
        cloud = cloud_of(source)
        if cloud in found:
            raise SpecError(
                f"{source}: pools of {cloud} were named before: put them in one", "--pools"
            )
        open_cloud = _open_gcp if cloud == GCP else _open_aws
        found[cloud] = open_cloud(source, state, host, controller, clock)
    return found


def open_storage(sources: Sequence[str], state: Path, clock: Clock) -> JobStorage | None:
    """Where jobs keep their files, if pools of a cloud are named: their instances share no disk.

    A job may move between clouds, so that its files lie in one: that of the source named first.
    It stays for as long as the controller runs, whatever the pools become; and from then on, for
    what jobs have saved is looked for there.

    Raises:
        SpecError: a source can't be read, or names no such place, or another one than before.
        ProviderError: the cloud does not give the pools, or there are no credentials.
    """
    if not sources:
        return None
    first = sources[0]
    open_files = _open_gcp_storage if cloud_of(first) == GCP else _open_aws_storage
    storage = open_files(first, state / _KEPT, clock)
    _require_place(storage.jobs.place, first, state / _PLACE)
    return storage


def cloud_of(source: str) -> str:
    """The cloud whose pools a source has: where it lies says so, or ``cloud`` of a file.

    Raises:
        SpecError: the file can't be read, or names another one.
    """
    for beginning, cloud in _STORED_BY.items():
        if source.startswith(beginning):
            return cloud
    told = read_yaml(read_text(Path(source)), source).value
    named = told.get("cloud", AWS) if isinstance(told, dict) else AWS
    if named not in (AWS, GCP):
        raise SpecError(f'{source}: cloud: "{named}" is none: write {AWS} or {GCP}', "--pools")
    return str(named)


def _open_aws_storage(source: str, kept: Path, clock: Clock) -> JobStorage:
    with _from_extra(AWS):
        from providers.aws.reading import fetch_settings, open_session, parse_settings
        from providers.aws.storage import S3JobStorage

    settings = PoolsSource(source, kept, fetch_settings, parse_settings).read_or_recall()
    endpoint_url = settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL")
    settings = settings.model_copy(update={"endpoint_url": endpoint_url})
    return S3JobStorage(settings, open_session(), clock)


def _open_gcp_storage(source: str, kept: Path, clock: Clock) -> JobStorage:
    with _from_extra(GCP):
        from providers.gcp.reading import fetch_settings, parse_settings
        from providers.gcp.session import open_session
        from providers.gcp.storage import GcsJobStorage

    settings = PoolsSource(source, kept, fetch_settings, parse_settings).read_or_recall()
    return GcsJobStorage(settings, open_session(settings.endpoint_url), clock)


def _open_aws(source: str, state: Path, host: str, controller: str, clock: Clock) -> Provider:
    with _from_extra(AWS):
        from providers.aws.provider import AwsProvider
        from providers.aws.reading import fetch_settings, open_session, parse_settings
        from providers.aws.settings import AwsSettings, Patience
        from providers.cloud.price_list import read_price_table
    session, patience = open_session(), Patience()
    prices = KnownPrices(_prices_file(state, AWS))

    def connect(settings: AwsSettings) -> AwsProvider:
        _require_reachable(host, settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
        table = read_price_table(settings.prices_from)
        return AwsProvider(
            settings, controller, clock, session, patience=patience, table=table, prices=prices
        )

    pools = PoolsSource(source, state / _KEPT, fetch_settings, parse_settings)
    return FollowingProvider(pools, connect, clock, patience.visible_seconds)


def _open_gcp(source: str, state: Path, host: str, controller: str, clock: Clock) -> Provider:
    with _from_extra(GCP):
        from providers.cloud.price_list import read_price_table
        from providers.gcp.provider import GcpProvider
        from providers.gcp.reading import fetch_settings, parse_settings
        from providers.gcp.records import Records
        from providers.gcp.session import open_session
        from providers.gcp.settings import GcpSettings, Patience
    patience = Patience()
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

    pools = PoolsSource(source, state / _KEPT, fetch_settings, parse_settings)
    return FollowingProvider(pools, connect, clock, patience.visible_seconds)


def _prices_file(state: Path, cloud: str) -> Path:
    """Return where the last known prices of a cloud are kept, for pools that are removed."""
    return state / "prices" / f"{cloud}.json"


def _require_place(place: str, source: str, kept: Path) -> None:
    """Jobs that found nothing of what they saved would begin anew, and nobody would be told."""
    before = kept.read_text().strip() if kept.exists() else ""
    if before not in ("", place):
        raise SpecError(
            f"{source}: jobs have their files in {before}, and this says {place}: name the pools "
            f"with the former first, or delete {kept} if no job is to go on",
            "--pools",
        )
    if not before:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{place}\n")


def _require_reachable(host: str, endpoint_url: str | None) -> None:
    """Instances that can't reach their controller would be paid for until they give up."""
    if is_any(host) or (is_here(host) and not is_url_here(endpoint_url)):
        raise SpecError(
            f"instances can't reach {host}: name the address of this host in their network",
            "--host",
        )


def _from_extra(cloud: str) -> AbstractContextManager[None]:
    """What is imported in there comes with the extra that is called as its cloud."""
    return from_extras(f"server,{cloud}", "--pools")
