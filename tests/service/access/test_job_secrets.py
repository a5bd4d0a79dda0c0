from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import SecretReference
from autoscaler.service.access.job_secrets import MAXIMUM_SECRET_BYTES, AllowedSecrets
from tests.service.agents import SPEC
from tests.service.conftest import Api


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a state directory, a directory of secrets, and a file beside them."""
    for name in ("state", "secrets/team", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "state" / "client.json").write_text("the owner's token")
    (tmp_path / "secrets" / "team" / "store-key").write_text("hidden-value\n")
    (tmp_path / "elsewhere" / "key").write_text("hidden-value")
    return tmp_path


def value_of(home: Path, file: str, variables: Mapping[str, str] | None = None) -> str:
    allowed = AllowedSecrets(home / "state", [home / "secrets"], variables or {})
    return allowed.values({"KEY": SecretReference(file=file)})["KEY"]


def test_a_file_of_an_allowed_directory_is_a_secret(home: Path) -> None:
    assert value_of(home, f"{home}/secrets/team/store-key") == "hidden-value"
    assert value_of(home, "team/store-key") == "hidden-value", "relative to the directory"


@pytest.mark.parametrize(
    "file",
    [
        "{}/state/client.json",
        "{}/elsewhere/key",
        "{}/elsewhere/no-such-file",
        "{}/secrets/../elsewhere/key",
        "../elsewhere/key",
        "{}/secrets/link",
        "{}/secrets/circle",
        "/dev/zero",
        "~nobody-is-called-so/key",
        "a\0b",
    ],
)
def test_a_file_elsewhere_is_none_and_not_even_known_to_exist(home: Path, file: str) -> None:
    (home / "secrets" / "link").symlink_to(home / "elsewhere" / "key")
    (home / "secrets" / "circle").symlink_to(home / "secrets" / "circle")
    with pytest.raises(SpecError) as caught:
        value_of(home, file.format(home))
    assert caught.value.field == "secrets.KEY.file"
    if "circle" not in file:
        assert "is not in a directory that holds secrets of jobs" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_state_directory_holds_no_secret_of_a_job(home: Path) -> None:
    allowed = AllowedSecrets(home / "state", [home])
    for file in ("state/client.json", "secrets/../state/client.json"):
        with pytest.raises(SpecError, match="is not in a directory that holds secrets"):
            allowed.values({"KEY": SecretReference(file=file)})
    assert allowed.values({"KEY": SecretReference(file="elsewhere/key")}) == {
        "KEY": "hidden-value"
    }


def test_only_small_regular_files_of_text_are_read(home: Path) -> None:
    secrets = home / "secrets"
    os.mkfifo(secrets / "fifo")
    (secrets / "large").write_bytes(b"x" * (MAXIMUM_SECRET_BYTES + 1))
    (secrets / "largest").write_bytes(b"x" * MAXIMUM_SECRET_BYTES)
    (secrets / "bytes").write_bytes(b"\xff\xfe")
    for file, reason in {
        "fifo": "not a regular file",
        "team": "not a regular file|Is a directory",
        "large": "larger than 65,536 bytes",
        "bytes": "not text",
        "absent": "No such file",
    }.items():
        with pytest.raises(SpecError, match=reason):
            value_of(home, file)
    assert len(value_of(home, "largest")) == MAXIMUM_SECRET_BYTES


def test_without_an_allowed_place_there_are_no_secrets(home: Path) -> None:
    allowed = AllowedSecrets(home / "state")
    with pytest.raises(SpecError, match=r"secrets\.KEY\.file: .*castor serve` with --secrets"):
        allowed.values({"KEY": SecretReference(file=f"{home}/elsewhere/key")})
    with pytest.raises(SpecError, match=r"secrets\.KEY\.variable: .*--secret-variables"):
        allowed.values({"KEY": SecretReference(variable="PATH")})


def test_the_owners_token_is_no_secret_of_a_job(api: Api) -> None:
    for reference in (
        SecretReference(file=str(api.directory / "secret.key")),
        SecretReference(variable="PATH"),
    ):
        with pytest.raises(SpecError, match=r"secrets\.KEY"):
            api.client.submit(replace(SPEC, secrets={"KEY": reference}))
    assert api.client.jobs() == ()
