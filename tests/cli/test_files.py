"""Files of the command line: each command that reads one names a file that it can't use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import CastorError
from autoscaler.main import ServeSettings, serving

ROOT: Final = Path(__file__).parents[2]
SIMULATION: Final = ROOT / "examples" / "simulation"
JOB: Final = ROOT / "examples" / "digits" / "job.yaml"
_KNOWN: Final = ("--profiles", SIMULATION / "profiles")
_OFFERS: Final = ("--offers", SIMULATION / "offers.yaml")
_WORKLOAD: Final = ("--workload", SIMULATION / "jobs.csv")
_SERVE: Final = ("--port", "0")
_TLS: Final = (*_SERVE, "--tls-cert", "FILE", "--tls-key", "FILE")
_OIDC: Final = ("--oidc-issuer", "https://a.example", "--oidc-client-id", "castor")
# Words of a command that reads FILE, by command and parameter.
READ: Final[dict[str, tuple[object, ...]]] = {
    "submit file": ("FILE",),
    "offers file": ("--offers", "FILE"),
    "resume file": ("job", "--file", "FILE"),
    "new script": ("FILE",),
    "serve fleet": (*_SERVE, "--fleet", "FILE"),
    "serve pools": (*_SERVE, "--fleet-usd", "5", "--pools", "FILE"),
    "serve notify": (*_SERVE, "--notify", "FILE"),
    "serve tls_cert": _TLS,
    "serve tls_key": _TLS,
    "serve tls_ca": (*_TLS, "--tls-ca", "FILE"),
    "serve oidc_client_secret_file": (*_SERVE, *_OIDC, "--oidc-client-secret-file", "FILE"),
    "restore file": ("FILE",),
    "plan job": ("FILE",),
    "plan offers": (JOB, "--offers", "FILE"),
    "check pools": ("FILE",),
    "buy pools": ("FILE", "--type", "p5.48xlarge"),
    "demo text": ("--text", "FILE", "--no-browser"),
    **{
        f"{command} {name}": words
        for command, first in (("simulate", ()), ("compare", ("--policies", "marginal")))
        for name, words in {
            "workload": (*first, "--workload", "FILE", *_KNOWN, *_OFFERS),
            "study": (*first, "--study", "FILE", *_OFFERS),
            "offers": (*first, *_WORKLOAD, *_KNOWN, "--offers", "FILE"),
            "cluster": (*first, *_WORKLOAD, *_KNOWN, "--cluster", "FILE"),
        }.items()
    },
    "study run file": ("FILE",),
    "study plan file": ("FILE",),
    "study status file": ("FILE",),
    "study stop file": ("FILE",),
    "study why file": ("FILE", "0"),
    "study budget file": ("FILE", "5"),
}
WRITTEN: Final = {
    *("fetch to", "new to", "costs focus", "backup file", "init directory", "demo picture"),
    *("plan plot", "simulate plot", "compare plot", "study status plot"),
    *("simulate json_file", "compare json_file", "replay json_file"),
}
DIRECTORIES: Final = {
    *("serve state", "adopt state", "backup state", "restore state", "replay state"),
    *("serve secrets", "plan profiles", "simulate profiles", "compare profiles"),
    *("simulate regimes", "compare regimes"),
}
CONTENTS: Final[dict[str, bytes]] = {
    "binary": bytes(range(256)) * 4,
    "empty": b"",
    "comment": b"# nothing\n",
    "list": b"- 1\n",
    "unbalanced": b"name: [1\n",
}

# Contents that a command can use.
_TEXTS: Final = ("comment", "list", "unbalanced")
USEFUL: Final = {
    "demo text": _TEXTS,
    "serve oidc_client_secret_file": _TEXTS,
    "new script": ("comment", "list"),
}


def parameters(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield command and name of each parameter that is a path or may be one."""
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from parameters(below, (*words, name))
    for parameter in command.params:
        is_path = parameter.type_descriptor.annotation in (Path, list[Path])
        if is_path or parameter.name in _PERHAPS_FILES:
            yield " ".join((*words, parameter.name))


# Texts that may be a file, or something else.
_PERHAPS_FILES: Final = ("pools", "cluster", "tls_cert")
PARAMETERS: Final = frozenset(parameters(typer.main.get_command(app)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in which commands run that find no controller."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("CASTOR_URL", raising=False)

    def start(settings: ServeSettings) -> None:
        serving._check_start(settings)
        raise AssertionError("the controller would start")

    def run(*_: object) -> None:
        raise AssertionError("the command would run")

    monkeypatch.setattr("autoscaler.main.serve", start)
    monkeypatch.setattr("autoscaler.cli.demo.scenario.simulated_cloud", run)
    return tmp_path


def refusal(parameter: str, file: str) -> str:
    """Return the one-line error of a command that reads `file`."""
    command = parameter.split()[:-1]
    words = [file if word == "FILE" else str(word) for word in READ[parameter]]
    done = CliRunner().invoke(app, [*command, *words])
    assert done.exit_code == 1, done.output
    if command == ["check"]:  # a table of findings
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return done.output.splitlines()[-1]
    assert isinstance(done.exception, CastorError), repr(done.exception)
    return str(done.exception)


def test_each_parameter_that_is_a_file_is_known_here() -> None:
    known = READ.keys() | WRITTEN | DIRECTORIES
    assert known == PARAMETERS, "add the parameter to READ, WRITTEN or DIRECTORIES"


@pytest.mark.parametrize("parameter", READ)
def test_a_file_that_is_missing_or_a_directory_is_named(parameter: str, folder: Path) -> None:
    missing = refusal(parameter, "absent.yaml")
    assert "absent.yaml" in missing and "\n" not in missing
    assert re.search("no such file: name |can't be read: .*name ", missing), missing
    (folder / "folder.yaml").mkdir()
    told = refusal(parameter, "folder.yaml")
    assert "folder.yaml" in told and "\n" not in told
    assert re.search("[Ii]s a directory", told), told
    assert "Errno" not in missing + told


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("parameter", READ)
def test_a_file_without_a_use_is_named(parameter: str, content: str, folder: Path) -> None:
    if content in USEFUL.get(parameter, ()):
        pytest.skip("the command takes this content")
    file = folder / f"{content}.yaml"
    file.write_bytes(CONTENTS[content])
    file.chmod(0o600)
    told = refusal(parameter, file.name)
    assert file.name in told and "Traceback" not in told, told
    if content == "binary" and "restore" not in parameter and "tls" not in parameter:
        assert "not text" in told, told
    if content == "empty" and "serve" not in parameter:
        assert "empty" in told, told


def test_a_job_file_is_checked_by_another_command() -> None:
    told = CliRunner().invoke(app, ["check", str(JOB)]).output
    assert "is a job file" in told and f"castor plan {JOB} checks a job" in told
