"""Login on a machine without a browser, at a controller process that serves HTTPS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import oidc_provider_mock
import pytest

from autoscaler.domain.errors import NotAllowed
from autoscaler.wire.client import Client
from autoscaler.wire.http import trusting
from tests.end_to_end.deployment import Deployment
from tests.service.identity import Browser

ADA = "ada@example.org"
CASTOR = (sys.executable, "-P", "-m", "autoscaler.cli.app")


class Person:
    """Person on another machine, with `castor`, the controller's certificate and nothing else."""

    def __init__(self, home: Path, authority: Path) -> None:
        self.login_file = home / ".config" / "castor" / "login.json"
        given = {name: value for name, value in os.environ.items() if "CASTOR" not in name}
        given.pop("XDG_CONFIG_HOME", None)
        self.environment = {**given, "HOME": str(home), "CASTOR_CA": str(authority)}

    def castor(self, *words: str) -> str:
        """Run a command; return what it printed."""
        completed = subprocess.run(
            [*CASTOR, *words], env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def log_in(self, url: str, browser: Browser, subject: str) -> str:
        """Log in, with a browser on a third machine; return what `castor login` printed."""
        terminal = subprocess.Popen(
            [*CASTOR, "login", url, "--no-browser"],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert terminal.stdout is not None
        with terminal.stdout as printed:
            try:
                pages = (re.search(r"https://\S+/login\?code=\S+", line) for line in printed)
                page = next(match[0] for match in pages if match is not None)
                provider = browser.http.get(page).headers["location"]
                callback = httpx.post(provider, data={"sub": subject}).headers["location"]
                assert callback.startswith(f"{url}/login/callback?")
                assert browser.decide(browser.http.get(callback)).status_code == 200
                rest = printed.read()
            finally:
                terminal.kill()
                terminal.wait()
        return rest


def test_a_person_logs_in_at_a_controller_without_a_browser_of_the_machine(tmp_path: Path) -> None:
    ada = oidc_provider_mock.User(sub="ada", claims={"email": ADA, "email_verified": True})
    with oidc_provider_mock.run_server_in_thread(user_claims=[ada]) as provider:
        issuer = f"http://localhost:{provider.server_port}"
        secret = tmp_path / "secret"
        secret.touch(0o600)
        secret.write_text("hidden value")
        options = ["--tls-cert", "auto", "--oidc-issuer", issuer, "--oidc-client-id", "castor"]
        options += ["--oidc-client-secret-file", str(secret)]
        deployment = Deployment(tmp_path, {}, options=options)
        with deployment.running():
            client = json.loads((deployment.state / "client.json").read_text())
            url, authority = client["url"], Path(client["authority"])
            person = Person(tmp_path / "home", authority)
            browser = Browser(url, trusting(authority.read_text()))
            deployment.castor("people", "add", ADA, "--role", "viewer")
            assert f"logged in as {ADA} at {url}" in person.log_in(url, browser, "ada")
            assert [cookie.name for cookie in browser.http.cookies.jar] == ["__Host-castor-login"]
            del person.environment["CASTOR_CA"]
            assert json.loads(person.castor("status", "--json")) == []
            saved = json.loads(person.login_file.read_text())
            assert f"{ADA}/{saved['name']}" in deployment.castor("audit")
            assert person.castor("logout") == f"logged out of {url}\n"
            assert not person.login_file.exists()
            with pytest.raises(NotAllowed, match="was revoked"):
                Client(url, saved["token"], authority=authority.read_text()).jobs()
