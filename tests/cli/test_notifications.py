"""Commands on notifications, and their routes, on a controller that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.domain.errors import Conflict
from autoscaler.domain.notice import DeliveryState, NoticeKind
from autoscaler.notifications.targets import Target
from tests.cli.access.inline import castor, run
from tests.controller.world import World
from tests.notifications.examples import refusal, sent_by, target
from tests.service.conftest import Api, served


@pytest.fixture
def api(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with served(World(tmp_path, template=template), tmp_path) as api:
        monkeypatch.setenv("CASTOR_URL", api.url)
        monkeypatch.setenv("CASTOR_TOKEN", api.token)
        monkeypatch.setenv("COLUMNS", "200")
        yield api


@contextmanager
def notifying(api: Api, *targets: Target) -> Iterator[None]:
    """Deliver notices to targets meanwhile."""
    notifications = api.notify(targets)
    notifications.start()
    try:
        yield
    finally:
        notifications.stop(5.0)


def test_a_test_reaches_each_target_and_is_in_the_audit_log(api: Api) -> None:
    ops, chat = target("ops"), target("chat", refusal())
    with notifying(api, ops, chat):
        result = run("notify", "test")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "chat: not delivered: example.org answered 500; it is sent again",
        "ops: delivered",
    ]
    assert sent_by(ops)[0].text == "This is a test, asked for by owner."
    view = api.client.notifications()
    assert [(entry.name, entry.kind) for entry in view.targets] == [
        ("ops", "scripted"),
        ("chat", "scripted"),
    ]
    states = {entry.target: (entry.state, entry.kind) for entry in view.deliveries}
    assert states == {
        "ops": (DeliveryState.DELIVERED, NoticeKind.TEST),
        "chat": (DeliveryState.WAITING, NoticeKind.TEST),
    }
    latest = api.client.audit()[0]
    assert (latest.action, latest.subject) == ("test notifications", "ops, chat")


def test_the_table_and_the_json_of_deliveries(api: Api) -> None:
    assert castor("notifications").startswith("no targets: castor serve --notify")
    with notifying(api, target("ops", refusal(is_final=True))):
        assert castor("notifications") == "no notice yet; targets: ops\n"
        run("notify", "test")
    assert "given up, 1 attempt: example.org answered 500" in castor("notifications")
    assert json.loads(castor("notifications", "--json"))["deliveries"][0]["state"] == "given up"


def test_without_targets_a_test_is_refused(api: Api) -> None:
    with pytest.raises(Conflict, match="start castor serve with --notify FILE"):
        run("notify", "test")
