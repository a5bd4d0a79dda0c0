"""Providers and job storage of a controller: this machine, and pools in clouds.

A source of pools is a file, or an address such as an SSM parameter or a bucket object that
Terraform wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.spec.form_file import POOLS_FILE, read_text
from autoscaler.spec.forms import Form
from autoscaler.spec.located_yaml import read_yaml
from providers.base import Provider
from providers.blocks import BlockMarket
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from providers.plugin import ControllerContext, ProviderPlugin
from providers.registry import plugin_of, provider_at, providers
from providers.storage import JobStorage

_DEFAULT_CLOUD: Final = "aws"
_STORAGE_PLACE_FILE: Final = "place-of-jobs"


def open_providers(
    local: LocalSettings | None, sources: Sequence[str], context: ControllerContext
) -> dict[str, Provider]:
    """Return the providers by name, as offers name them.

    Args:
        local: the devices of this machine to offer; None offers none.
        sources: sources of pools: files, or addresses such as ``ssm:/NAME`` or
            ``gs://BUCKET/NAME``.
        context: the controller.

    Raises:
        SpecError: a source can't be read or used, or instances can't reach the controller.
        ProviderError: the cloud does not return the pools, and no copy of them is cached.
    """
    opened: dict[str, Provider] = {}
    if local is not None:
        opened["local"] = LocalProvider(
            context.state / "local", context.controller, local, context.clock
        )
    for source in sources:
        cloud, plugin = _plugin_of(source)
        if cloud in opened:
            raise second_source(source, cloud)
        opened[cloud] = plugin.open_provider(source, context)
    return opened


def pools_forms() -> Mapping[str, type[Form]]:
    """Return the forms of files of pools by cloud, of all providers that can be used."""
    usable = (listing.name for listing in providers() if listing.trouble is None)
    forms = {name: plugin_of(name, "cloud").pools_form() for name in usable}
    return {name: form for name, form in forms.items() if form is not None}


def second_source(source: str, cloud: str) -> SpecError:
    """Return the error that another source before `source` has pools of its cloud."""
    return SpecError(
        f"{source}: pools of {cloud} were named before: merge the two sources", "--pools"
    )


def open_storage(sources: Sequence[str], context: ControllerContext) -> JobStorage | None:
    """Return the storage of jobs' files; None without pools in a cloud that has storage.

    A job may move between clouds, so all files are in one cloud: that of the first source whose
    cloud has storage. The place stays the same as long as the state directory exists, because
    saved files are read from there.

    Raises:
        SpecError: a source can't be read, names no storage, or names another storage than before.
        ProviderError: the cloud does not return the pools, or there are no credentials.
    """
    for source in sources:
        _, plugin = _plugin_of(source)
        storage = plugin.open_storage(source, context)
        if storage is not None:
            _require_place(storage.jobs.place, source, context.state / _STORAGE_PLACE_FILE)
            return storage
    return None


def open_block_market(source: str, clock: Clock) -> BlockMarket:
    """Return the market of capacity blocks of a source's cloud.

    Raises:
        SpecError: the cloud has none, or the source can't be read.
        ProviderError: the cloud does not return the pools.
    """
    return _plugin_of(source)[1].open_block_market(source, clock)


def cloud_of(source: str) -> str:
    """Return the cloud of a source: by its address, or by ``cloud`` in the file.

    Raises:
        SpecError: the file can't be read, or names an unknown cloud or one that can't be used.
    """
    return _plugin_of(source)[0]


def _plugin_of(source: str) -> tuple[str, ProviderPlugin]:
    """Return the name of a source's cloud, and the cloud's plug-in."""
    cloud = provider_at(source)
    if cloud is None and "://" in source:
        raise SpecError(f"{source}: write a file, ssm:/NAME or gs://BUCKET/NAME", "--pools")
    if cloud is None:
        document = read_yaml(read_text(Path(source), POOLS_FILE), source).value
        if not isinstance(document, dict):
            problem = "is empty" if document is None else "is no mapping"
            raise SpecError(f"{source}: {problem}: name {POOLS_FILE}", "--pools")
        settings: dict[str, object] = document
        if "command" in settings and "pools" not in settings:
            words = "is a job file, and no file of pools: castor plan"
            raise SpecError(f"{source}: {words} {source} checks a job", "--pools")
        if "cloud" not in settings and "project" in settings:
            raise SpecError(
                f"{source}: cloud is missing, and only gcp's pools have a project: add cloud: gcp",
                "--pools",
            )
        cloud = str(settings.get("cloud", _DEFAULT_CLOUD))
    try:
        return cloud, plugin_of(cloud, f"{source}: cloud")
    except SpecError as error:
        raise SpecError(str(error), "--pools") from error


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
