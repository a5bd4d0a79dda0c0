"""Providers by name: ours, those that others install, and those that can't be used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typer.testing import CliRunner

from autoscaler import plug_ins
from autoscaler.cli.app import app
from autoscaler.clock import Clock, SystemClock
from autoscaler.clouds import cloud_of, open_storage
from autoscaler.domain.errors import SpecError
from providers.base import Provider
from providers.bill import Account, BillSource
from providers.plugin import ControllerContext, ProviderPlugin
from providers.registry import ENTRY_POINTS, plugin_of, provider_at, providers
from providers.storage import JobStorage

ROOT = Path(__file__).parents[2]


class ShedPlugin(ProviderPlugin):
    """Plug-in with the fewest members that a package can register."""

    def open_provider(self, source: str, context: ControllerContext) -> Provider:
        raise SpecError(f"{source}: no pool is named")


class BarnPlugin(ShedPlugin):
    """Plug-in with storage and a bill."""

    def open_storage(self, source: str, context: ControllerContext) -> JobStorage:
        return cast(JobStorage, SimpleNamespace(jobs=SimpleNamespace(place=f"barn:{source}")))

    def open_account(self, source: BillSource, clock: Clock) -> Account:
        raise SpecError(f"{source.table} is no table of the barn", "--table")


class UnfinishedPlugin(ProviderPlugin):
    """Plug-in that opens nothing."""


class Stranger:
    """No plug-in at all."""


def installed(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = [EntryPoint(name, place, ENTRY_POINTS) for name, place in places.items()]
    monkeypatch.setattr(plug_ins, "entry_points", lambda group: points)


def pools_of(cloud: str, directory: Path) -> str:
    path = directory / f"{cloud}.yaml"
    path.write_text(f"cloud: {cloud}\n")
    return str(path)


def test_our_own_providers_are_declared_as_those_of_others_are() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {each.name: each.place for each in providers()} == declared[ENTRY_POINTS]
    assert {each.trouble for each in providers()} == {None}


def test_no_sdk_is_imported_to_know_of_providers() -> None:
    told = (
        "import sys; from providers.registry import plugin_of, providers; providers();"
        "plugin_of('aws', 'cloud'), plugin_of('gcp', 'cloud');"
        "print({'boto3', 'google', 'obstore', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_others_can_be_installed_but_not_over_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = f"{__name__}:ShedPlugin"
    installed(monkeypatch, shed=place, aws=place)
    assert isinstance(plugin_of("shed", "cloud"), ShedPlugin)
    assert not isinstance(plugin_of("aws", "cloud"), ShedPlugin)
    assert cloud_of(pools_of("shed", tmp_path)) == "shed"
    assert cloud_of("shed:/pools") == "shed"
    assert provider_at("barn:/pools") is None
    with pytest.raises(SpecError, match='cloud: "barn" is unknown: write aws, gcp or shed'):
        cloud_of(pools_of("barn", tmp_path))


@pytest.mark.parametrize(
    ("place", "trouble"),
    [
        ("no.such.module:Plugin", "ModuleNotFoundError: No module named 'no'"),
        (f"{__name__}:Missing", "AttributeError: .* 'Missing'"),
        (f"{__name__}:Stranger", "TypeError: .*Stranger.* is no subclass of ProviderPlugin"),
        (f"{__name__}:UnfinishedPlugin", "TypeError: UnfinishedPlugin lacks open_provider"),
    ],
)
def test_a_broken_one_is_listed_with_its_trouble(
    place: str, trouble: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, broken=place)
    (found,) = [each for each in providers() if each.name == "broken"]
    assert found.trouble is not None
    for source in (pools_of("broken", tmp_path), "broken:/pools"):
        with pytest.raises(SpecError, match=f"--pools: .*: broken can't be used: {trouble}"):
            cloud_of(source)
    with pytest.raises(SpecError, match=rf"write aws or gcp; broken can't be used: {trouble}"):
        cloud_of(pools_of("barn", tmp_path))
    assert cloud_of(pools_of("gcp", tmp_path)) == "gcp"


def test_a_provider_without_storage_and_bill_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, shed=f"{__name__}:ShedPlugin")
    clock = SystemClock()
    shed = plugin_of("shed", "--cloud")
    assert shed.open_storage("shed.yaml", ControllerContext(tmp_path, "::1", "a", clock)) is None
    with pytest.raises(SpecError, match="--cloud: this provider reports no bills"):
        shed.open_account(BillSource(), clock)


def test_jobs_files_are_in_the_first_cloud_that_has_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, shed=f"{__name__}:ShedPlugin", barn=f"{__name__}:BarnPlugin")
    context = ControllerContext(tmp_path, "::1", "a", SystemClock())
    storage = open_storage(["shed:/pools", "barn:/1", "barn:/2"], context)
    assert storage is not None and storage.jobs.place == "barn:barn:/1"
    with pytest.raises(SpecError, match="have their files in barn:barn:/1"):
        open_storage(["shed:/pools", "barn:/2"], context)


def test_a_bill_is_read_from_the_cloud_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, barn=f"{__name__}:BarnPlugin")
    told = {"barn": "--table: t is no table of the barn", "sty": '--cloud: "sty" is unknown'}
    for cloud, error in told.items():
        words = ["reconcile", "prod", "--cloud", cloud, "--table", "t"]
        result = CliRunner().invoke(app, words)
        assert isinstance(result.exception, SpecError) and error in str(result.exception)


def test_bills_are_asked_for_in_the_words_of_their_cloud() -> None:
    clock = SystemClock()
    with pytest.raises(SpecError, match="--table: is for Google Cloud only"):
        plugin_of("aws", "--cloud").open_account(BillSource("a.b.c"), clock)
    with pytest.raises(SpecError, match="--table: is required"):
        plugin_of("gcp", "--cloud").open_account(BillSource(), clock)
