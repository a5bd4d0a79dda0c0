"""Webhooks and Slack's format, over real HTTP and HTTPS connections."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.notifications.base import NotDelivered
from autoscaler.notifications.http_post import PostedUrl, allowed_address, is_refused
from autoscaler.notifications.signature import keys_of
from autoscaler.notifications.webhook import SlackSender, WebhookSender, slack_document
from tests.notifications.examples import (
    DEPLOYMENT,
    SECRET,
    certificate,
    message,
    notice,
    options,
    private_file,
    receiver,
)

PAGE = Path(__file__).parents[2] / "docs" / "notifications.md"
OLD_SECRET = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="


def webhook(directory: Path, url: str, **values: object) -> WebhookSender:
    private_file(directory, "key", SECRET)
    return WebhookSender(options(directory, url=url, secret_file="key", **values))


def test_a_receiver_verifies_a_webhook_by_the_documented_function(tmp_path: Path) -> None:
    functions: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0], functions)
    verify = functions["is_from_castor"]
    assert callable(verify)
    now_seconds = time.time()
    with receiver() as server:
        notifier = webhook(tmp_path, server.url, insecure=True)
        notifier.send(message(), now_seconds)
    (request,) = server.requests
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-timestamp"] == f"{now_seconds:.0f}"
    assert verify(SECRET, request.headers, request.body)
    assert not verify(OLD_SECRET, request.headers, request.body)
    assert not verify(SECRET, request.headers, request.body + b" ")
    late = {**request.headers, "webhook-timestamp": f"{now_seconds - 400:.0f}"}
    assert not verify(SECRET, late, request.body)


def test_the_body_has_the_documented_keys(tmp_path: Path) -> None:
    with receiver() as server:
        webhook(tmp_path, server.url, insecure=True).send(message(), 0.0)
    sent = json.loads(server.requests[0].body)
    documented = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    assert sent.keys() == documented.keys()
    assert sent["data"].keys() == documented["data"].keys()
    assert sent["type"] == "job.failed"
    assert sent["data"] == {
        "id": message().id,
        "deployment": DEPLOYMENT,
        "subject": "digits",
        "job": "digits",
        "person": "ada",
        "team": "nlp",
        "message": "digits failed: <!channel> & co",
        "link": "https://castor.example.org/jobs/digits",
        "figures": {"spent_usd": 0.42},
    }
    assert server.requests[0].headers["webhook-id"] == sent["data"]["id"]


def test_while_a_secret_is_renewed_both_sign(tmp_path: Path) -> None:
    with receiver() as server:
        notifier = webhook(tmp_path, server.url, insecure=True)
        private_file(tmp_path, "key", f"{SECRET}\n{OLD_SECRET}\n")  # read for each message
        notifier.send(message(), 0.0)
        assert len(server.requests[0].headers["webhook-signature"].split()) == 2
        private_file(tmp_path, "key", "gone")
        with pytest.raises(NotDelivered, match="whsec_"):
            notifier.send(message(), 0.0)


def test_https_trusts_the_named_certificates_only(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with receiver(files) as server:
        webhook(tmp_path, server.url, ca_file=str(files.certificate)).send(message(), 0.0)
        assert len(server.requests) == 1
        with pytest.raises(NotDelivered, match="certificate verify failed"):
            webhook(tmp_path, server.url).send(message(), 0.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "headers", "is_final", "retry_after", "words"),
    [
        (500, {}, False, None, "127.0.0.1 answered 500: broken"),
        (429, {"Retry-After": "120"}, False, 120.0, "429"),
        (503, {"Retry-After": "999999"}, False, 3600.0, "503"),
        (410, {}, True, None, "410"),
        (302, {"Location": "http://127.0.0.1/other"}, False, None, "not followed"),
    ],
)
def test_other_answers_than_2xx_are_refusals(
    tmp_path: Path,
    status: int,
    headers: dict[str, str],
    is_final: bool,
    retry_after: float | None,
    words: str,
) -> None:
    with receiver() as server:
        server.answers.append((status, headers, b"broken"))
        with pytest.raises(NotDelivered, match=words) as refused:
            webhook(tmp_path, server.url, insecure=True).send(message(), 0.0)
    assert len(server.requests) == 1
    assert (refused.value.is_final, refused.value.retry_after_seconds) == (is_final, retry_after)


def test_a_server_that_is_away_is_a_refusal(tmp_path: Path) -> None:
    with receiver() as server:
        pass
    with pytest.raises(NotDelivered, match="does not answer"):
        webhook(tmp_path, server.url, insecure=True).send(message(), 0.0)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "2002:a9fe:a9fe::1",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "::",
        "224.0.0.1",
    ],
)
def test_addresses_of_metadata_services_are_refused(address: str) -> None:
    assert is_refused(address)
    with pytest.raises(NotDelivered, match="nothing is sent"):
        allowed_address("hooks.example.org", 443, lambda host, port: ["203.0.113.7", address])


@pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.8", "127.0.0.1", "2001:db8::1"])
def test_other_addresses_are_permitted(address: str) -> None:
    assert allowed_address("hooks.example.org", 443, lambda host, port: [address]) == address


def test_the_checked_address_is_the_one_that_is_connected_to() -> None:
    answers = [["127.0.0.1"], ["169.254.169.254"]]  # a name that changes between two look-ups
    with receiver() as server:
        port = server.url.split(":")[2].split("/")[0]
        url = PostedUrl(
            f"http://hooks.example.org:{port}/hook",
            is_insecure=True,
            resolve=lambda host, port: answers.pop(0),
        )
        url.post(b"{}", {})
        with pytest.raises(NotDelivered, match=r"hooks\.example\.org is at 169\.254\.169\.254"):
            url.post(b"{}", {})
    (request,) = server.requests
    assert request.headers["host"] == f"hooks.example.org:{port}"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://hooks.example.org/x", "in the clear: write https://"),
        ("ftp://hooks.example.org", "must be a URL like"),
        ("https://", "must be a URL like"),
        ("https://host:99999/", "must be a URL like"),
        ("https://a b/", "must be a URL like"),
        ("https://ada:hush@example.org/", "no user and password"),
    ],
)
def test_urls_are_checked_and_never_repeated(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as refused:
        webhook(tmp_path, url)
    assert refused.value.field == "url"
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("text", ["hush", "whsec_aGFsbG8=", "whsec_!", "", f"{SECRET} " * 3])
def test_a_weak_secret_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SpecError, match="openssl rand -base64 32") as refused:
        keys_of(text)
    assert "hush" not in str(refused.value)


def test_a_message_of_slack_has_no_markup_of_the_notice(tmp_path: Path) -> None:
    with receiver() as server:
        environment = {"SLACK_URL": server.url}
        values = {"url_variable": "SLACK_URL", "insecure": True}
        SlackSender(options(tmp_path, environment, **values)).send(message(), 0.0)
    sent = json.loads(server.requests[0].body)
    assert sent == slack_document(message())
    assert sent["text"] == "digits: failed"
    (attachment,) = sent["attachments"]
    assert attachment["text"] == "digits failed: &lt;!channel&gt; &amp; co"
    assert attachment["title_link"] == "https://castor.example.org/jobs/digits"
    assert attachment["color"] == "danger"


def test_control_characters_of_a_notice_are_escaped() -> None:
    hostile = message(notice("a\x1b[2J\nb\u202e"))
    assert hostile.text == "a\\x1b[2J b\\u202e"


def test_the_url_of_a_room_is_a_secret(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="url_file"):
        SlackSender(options(tmp_path, url="https://hooks.slack.com/services/T/B/x"))
    private_file(tmp_path, "room", "http://rooms.example.org/")
    with pytest.raises(SpecError, match="url_file: messages to"):
        SlackSender(options(tmp_path, url_file="room"))
