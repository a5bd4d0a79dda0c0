"""Opens the providers that a controller is told to buy from: this machine, and pools in clouds.

A source of pools is a file, or where Terraform wrote them.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from providers.base import Provider
from providers.cloud.following import FollowingProvider, PoolsSource
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from providers.storage import JobStorage

_KEPT = "pools"


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
        sources: where pools are: files, or ``ssm:/NAME``.
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
        if "aws" in found:
            raise SpecError(
                f"{source}: pools of AWS were named before: put them in one", "--pools"
            )
        found["aws"] = _open_aws(source, state / _KEPT, host, controller, clock)
    return found


def open_storage(sources: Sequence[str], state: Path, clock: Clock) -> JobStorage | None:
    """Where jobs keep their files, if pools of a cloud are named: their instances share no disk.

    It stays for as long as the controller runs, whatever the pools become.

    Raises:
        SpecError: a source can't be read, or names no such place.
        ProviderError: the cloud does not give the pools, or there are no credentials.
    """
    for source in sources:
        return _open_aws_storage(source, state / _KEPT, clock)
    return None


def _open_aws_storage(source: str, kept: Path, clock: Clock) -> JobStorage:
    from providers.aws.reading import fetch_settings, open_session, parse_settings
    from providers.aws.storage import S3JobStorage

    settings = PoolsSource(source, kept, fetch_settings, parse_settings).read_or_recall()
    endpoint_url = settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL")
    settings = settings.model_copy(update={"endpoint_url": endpoint_url})
    return S3JobStorage(settings, open_session(), clock)


def _open_aws(source: str, kept: Path, host: str, controller: str, clock: Clock) -> Provider:
    try:
        from providers.aws.provider import AwsProvider
        from providers.aws.reading import (
            fetch_settings,
            open_session,
            parse_settings,
            read_price_table,
        )
        from providers.aws.settings import AwsSettings, Patience
    except ModuleNotFoundError as error:
        raise SpecError(
            f"{error.name} is not installed: pip install castor-autoscaler[server,aws]", "--pools"
        ) from error
    session, patience = open_session(), Patience()

    def connect(settings: AwsSettings) -> AwsProvider:
        _require_reachable(host, settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
        table = read_price_table(settings)
        return AwsProvider(settings, controller, clock, session, patience=patience, table=table)

    pools = PoolsSource(source, kept, fetch_settings, parse_settings)
    return FollowingProvider(pools, connect, clock, patience.visible_seconds)


def _require_reachable(host: str, endpoint_url: str | None) -> None:
    """Instances that can't reach their controller would be paid for until they give up."""
    elsewhere = endpoint_url is None or not _is_here(urlsplit(endpoint_url).hostname or "")
    if _is_any(host) or (elsewhere and _is_here(host)):
        raise SpecError(
            f"instances can't reach {host}: name the address of this host in their network",
            "--host",
        )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
