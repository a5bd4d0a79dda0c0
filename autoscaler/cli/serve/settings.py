"""Settings of `castor serve`, built from its options."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import ByteSize, TypeAdapter, ValidationError

from autoscaler.cli.serve.encryption import Encryption
from autoscaler.cli.serve.identity_provider import IdentityProvider
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import require_number, require_variable
from autoscaler.domain.text import has_controls
from autoscaler.main import ServeSettings
from autoscaler.notifications.targets import Target, load_targets
from autoscaler.service.instances.assignments import TrainingTimes
from autoscaler.spec.fleet_file import FleetFile, load_fleet
from autoscaler.spec.quantities import parse_duration, parse_money
from autoscaler.supervision import cores_here
from providers.local.settings import LocalSettings, default_catalogue

Value = TypeVar("Value")

_log = logging.getLogger(__name__)

# Seconds between listings of instances. Clouds limit and bill calls, and change more slowly.
_LISTING_SECONDS = {"local": 0.2, "cloud": 5.0}
_NONE = "none"
_NO_OPTIONS: Final = Encryption()
_NO_PROVIDER: Final = IdentityProvider()
# Default budgets of jobs and studies on a cloud, in US dollars.
_JOB_USD, _STUDY_USD = Decimal(50), Decimal(200)
_MOST_RECLAIMS_PER_HOUR: Final = 3600.0
_DAY_SECONDS: Final = 86_400.0
_LEAST_KEEP_SECONDS: Final = _DAY_SECONDS
_LEAST_SIZE_BYTES: Final = 1 << 20
_MOST_SIZE_BYTES: Final = 1 << 60
_LEAST_LEASE_SECONDS, _LONGEST_LEASE_SECONDS = 60.0, _DAY_SECONDS


def serve_settings(
    state: Path,
    *,
    devices: str | None,
    boot_seconds: float,
    reclaims_per_hour: float = 0.0,
    fleet_usd_per_hour: float | None,
    fleet_usd: str | None = None,
    job_usd: str | None = None,
    study_usd: str | None = None,
    checkpoint_seconds: float,
    lease: str = "30m",
    keep: str = "30d",
    job_logs: str = "10GiB",
    owner_bundles: str = "20GiB",
    study_files: str = "20GiB",
    observe: bool = False,
    fleet: Path | None = None,
    pools: Sequence[str] = (),
    secrets: Sequence[Path] = (),
    secret_variables: str = "",
    host: str = "127.0.0.1",
    public_url: str | None = None,
    encryption: Encryption = _NO_OPTIONS,
    identity_provider: IdentityProvider = _NO_PROVIDER,
    **settings: Any,
) -> ServeSettings:
    """Return the settings of a controller; each parameter is an option of `castor serve`.

    With `pools` of a cloud, this machine's cores are offered only if `devices` names some.

    Raises:
        SpecError: an option can't be used; the message names it.
    """
    _require_numbers(boot_seconds, checkpoint_seconds, reclaims_per_hour, fleet_usd_per_hour)
    rules = FleetFile() if fleet is None else load_fleet(fleet)
    local = _local_settings(boot_seconds, reclaims_per_hour, devices)
    public_url = None if public_url is None else _public_url(public_url)
    tls = encryption.files(state.absolute(), host, public_url)
    return ServeSettings(
        state=state.absolute(),
        controller=ControllerSettings(
            fleet_usd_per_hour=fleet_usd_per_hour,
            fleet_usd=_fleet_usd(fleet_usd, pools),
            job_usd=_default_usd(job_usd, _JOB_USD, pools, "--job-usd"),
            study_usd=_default_usd(study_usd, _STUDY_USD, pools, "--study-usd"),
            listing_seconds=_LISTING_SECONDS["cloud" if pools else "local"],
            keep_seconds=_keep_seconds(keep),
            job_log_bytes=_size_bytes(job_logs, "--job-logs"),
            observes=observe,
            shares=rules.shares,
            discounts=rules.discounts,
        ),
        times=TrainingTimes(checkpoint_interval_seconds=checkpoint_seconds),
        lease_seconds=_lease_seconds(lease),
        owner_bundle_bytes=_size_bytes(owner_bundles, "--owner-bundles"),
        study_file_bytes=_size_bytes(study_files, "--study-files"),
        local=None if pools and devices is None else local,
        pools=tuple(pools),
        secret_directories=tuple(_secret_directory(path, state) for path in secrets),
        secret_variables=_secret_variables(secret_variables),
        host=host,
        public_url=public_url,
        tls=tls,
        oidc=identity_provider.settings(host, public_url, tls),
        **settings,
    )


def _local_settings(
    boot_seconds: float, reclaims_per_hour: float, devices: str | None
) -> LocalSettings:
    """Return the settings of instances on this machine, on all of its cores without `devices`."""
    local = LocalSettings(catalogue=default_catalogue(boot_seconds, reclaims_per_hour))
    return local if devices is None else replace(local, devices=_cores(devices))


def _require_numbers(
    boot_seconds: float,
    checkpoint_seconds: float,
    reclaims_per_hour: float,
    fleet_usd_per_hour: float | None,
) -> None:
    require_number(boot_seconds, "--boot-seconds", 0.0, _DAY_SECONDS)
    require_number(checkpoint_seconds, "--checkpoint-seconds", 1.0, _DAY_SECONDS)
    require_number(reclaims_per_hour, "--reclaims-per-hour", 0.0, _MOST_RECLAIMS_PER_HOUR)
    if fleet_usd_per_hour is not None and not 0 < fleet_usd_per_hour < float("inf"):
        raise SpecError(f"{fleet_usd_per_hour} must be above 0", "--fleet-usd-per-hour")


def targets_in(file: Path | None) -> tuple[Target, ...]:
    """Return the targets of notices of option --notify; none without a file.

    Raises:
        SpecError: the file can't be read or used.
    """
    return () if file is None else load_targets(file)


def warn_without_torch(settings: ServeSettings) -> None:
    """Log a warning if jobs may run on this machine and PyTorch is not installed."""
    if settings.local is not None and find_spec("torch") is None:
        _log.warning(
            "PyTorch is not installed here: jobs on this machine that need it fail. Install it: "
            "pip install 'castor-autoscaler[server,training]'"
        )


def _secret_directory(path: Path, state: Path) -> Path:
    """Return the absolute path of a directory of secrets.

    Raises:
        SpecError: the path is not a directory, or is in the state directory.
    """
    directory = path.expanduser().absolute()
    if not directory.is_dir():
        raise SpecError(f"{directory} is not a directory: create it, mode 0700", "--secrets")
    if directory.resolve().is_relative_to(state.absolute().resolve()):
        raise SpecError(
            f"{directory} is in the state directory, from which no job gets a file: use another",
            "--secrets",
        )
    return directory


def _public_url(text: str) -> str:
    """Return the URL under which others reach the API, without a slash at its end.

    Raises:
        SpecError: it is no URL of HTTP or HTTPS, or has a path, a query or a user.
    """
    with suppress(ValueError):  # the port is no number
        parts = urlsplit(text.rstrip("/"))
        has_rest = parts.path or parts.query or parts.fragment or parts.username
        is_web = parts.scheme in ("http", "https")
        if is_web and parts.hostname and not has_rest and (parts.port or 1) > 0:
            return parts.geturl()
    raise SpecError(f"{text!r} must be like https://castor.example.org:8470", "--public-url")


def dashboard_url(text: str | None) -> str | None:
    """Return the URL of option --optuna-dashboard; None without one.

    Raises:
        SpecError: it is no URL of HTTP or HTTPS, or has a user.
    """
    if text is None:
        return None
    with suppress(ValueError):  # the port is no number
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and not has_controls(text)
        if is_web and parts.hostname and not parts.username and (parts.port or 1) > 0:
            return parts.geturl()
    raise SpecError(f"{text!r} must be like http://studies.example.org:8080", "--optuna-dashboard")


def _secret_variables(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        require_variable(name, "--secret-variables")
    return tuple(names)


def _fleet_usd(text: str | None, pools: Sequence[str]) -> Decimal | None:
    """Return the limit on total spending in US dollars; None means no limit.

    Raises:
        SpecError: `pools` are named without a limit, or the limit is no amount.
    """
    if text is None and pools:
        raise SpecError(
            "is required with --pools: the limit in US dollars on the total spending of all jobs, "
            "such as 500, or none for no limit",
            "--fleet-usd",
        )
    return None if text is None or text == _NONE else _parsed(parse_money, text, "--fleet-usd")


def _default_usd(
    text: str | None, cloud_usd: Decimal, pools: Sequence[str], option: str
) -> Decimal | None:
    """Return a default budget in US dollars; None means no budget.

    Without `text` it is `cloud_usd` on a cloud, and None on this machine alone.
    """
    if text is None:
        return cloud_usd if pools else None
    return None if text == _NONE else _parsed(parse_money, text, option)


def _lease_seconds(text: str) -> float:
    """Return a lease in seconds, from 60 (longer than a restart) to 86,400.

    Raises:
        SpecError: the text is no duration, or is out of this range.
    """
    lease_seconds = _parsed(parse_duration, text, "--lease")
    if not _LEAST_LEASE_SECONDS <= lease_seconds <= _LONGEST_LEASE_SECONDS:
        raise SpecError(f'"{text}" must be from 1m to 1d', "--lease")
    return lease_seconds


def _keep_seconds(text: str) -> float:
    """Return how long old facts are kept, at least a day.

    Raises:
        SpecError: the text is no duration, or is too short.
    """
    keep_seconds = _parsed(parse_duration, text, "--keep")
    if keep_seconds < _LEAST_KEEP_SECONDS:
        raise SpecError(f'"{text}" must be 1d or longer', "--keep")
    return keep_seconds


def _size_bytes(text: str, option: str) -> int:
    """Return a limit on the files of a job, a person or a study in bytes, from 1 MiB to 1 EiB.

    Raises:
        SpecError: the text is no size, or the size is out of range.
    """
    try:
        size_bytes = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size_bytes = 0
    if not _LEAST_SIZE_BYTES <= size_bytes <= _MOST_SIZE_BYTES:
        message = f'"{text}" must be a size such as 500MB or 10GiB, from 1MiB to 1EiB'
        raise SpecError(message, option)
    return size_bytes


def _parsed(parse: Callable[[str], Value], text: str, option: str) -> Value:
    """Return the value of an option.

    Raises:
        SpecError: `parse` does not accept the text.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise SpecError(str(error), option) from error


def _cores(text: str) -> tuple[int, ...]:
    available = cores_here()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) in available for word in words):
        cores = ",".join(str(core) for core in available)
        raise SpecError(f"{text!r}: name cores of this machine, as {cores}", "--devices")
    return tuple(dict.fromkeys(int(word) for word in words))
