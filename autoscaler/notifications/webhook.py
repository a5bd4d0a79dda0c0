"""Notifiers over HTTPS: signed webhooks, and messages of Slack and of what takes its format."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.notice import NoticeKind
from autoscaler.notifications.base import (
    Message,
    NotDelivered,
    NoticeSender,
    Secret,
    TargetOptions,
)
from autoscaler.notifications.http_post import PostedUrl
from autoscaler.notifications.signature import keys_of, signed_headers
from autoscaler.spec.forms import Form

_LONGEST_TEXT: Final = 3000
_SIGNS: Final = {
    NoticeKind.FINISHED: "good",
    NoticeKind.FAILED: "danger",
    NoticeKind.LEAK: "danger",
    NoticeKind.STALLED: "warning",
    NoticeKind.RETRIED: "warning",
    NoticeKind.BUDGET: "warning",
    NoticeKind.DEADLINE: "warning",
}


class WebhookForm(Form):
    """Options of a webhook."""

    url: str
    secret_file: str | None = None
    secret_variable: str | None = None
    insecure: bool = False
    ca_file: str | None = None


class WebhookSender(NoticeSender):
    """Webhook as in the Standard Webhooks specification, signed with HMAC-SHA256."""

    def __init__(self, options: TargetOptions) -> None:
        """Check the options; nothing is sent.

        Raises:
            SpecError: an option can't be used.
        """
        form = options.as_form(WebhookForm)
        authority = None if form.ca_file is None else options.folder / Path(form.ca_file)
        self._url = PostedUrl(form.url, is_insecure=form.insecure, authority=authority)
        self._secret = options.secret("secret", form.secret_file, form.secret_variable)
        _keys_in(self._secret)

    def send(self, message: Message, now_seconds: float) -> None:
        """Send a message."""
        try:
            keys = _keys_in(self._secret)
        except SpecError as error:
            raise NotDelivered(str(error)) from None
        body = webhook_body(message)
        self._url.post(body, signed_headers(keys, message.id, now_seconds, body))


def webhook_body(message: Message) -> bytes:
    """Return the body of a webhook: JSON with the type, the time, and the data of the notice."""
    notice = message.notice
    document = {
        "type": notice.key.kind,
        "timestamp": datetime.fromtimestamp(notice.at_seconds, UTC).isoformat(),
        "data": {
            "id": message.id,
            "deployment": message.deployment,
            "subject": notice.key.subject,
            "job": notice.job,
            "person": notice.person,
            "team": notice.team,
            "message": message.text,
            "link": message.link,
            "figures": dict(notice.figures),
        },
    }
    return json.dumps(document, allow_nan=False).encode()


def _keys_in(secret: Secret) -> tuple[bytes, ...]:
    try:
        return keys_of(secret.read())
    except SpecError as error:
        raise error if error.field else SpecError(error.message, secret.option) from None


class SlackForm(Form):
    """Options of a room. Its URL lets everybody write to it, so it is a secret."""

    url_file: str | None = None
    url_variable: str | None = None
    insecure: bool = False


class SlackSender(NoticeSender):
    """Incoming webhook of Slack, or of a chat that takes its format, such as Mattermost."""

    def __init__(self, options: TargetOptions) -> None:
        """Check the options; nothing is sent.

        Raises:
            SpecError: an option can't be used.
        """
        if "url" in options.values:
            raise SpecError(
                "the URL lets everybody write to the room, so it is a secret: write it to a file "
                "of mode 0600 and name that as url_file, or name a variable as url_variable",
                "url",
            )
        form = options.as_form(SlackForm)
        self._secret = options.secret("url", form.url_file, form.url_variable)
        self._is_insecure = form.insecure
        self._open_url()

    def send(self, message: Message, now_seconds: float) -> None:
        """Send a message."""
        try:
            url = self._open_url()
        except SpecError as error:
            raise NotDelivered(str(error)) from None
        url.post(json.dumps(slack_document(message)).encode(), {})

    def _open_url(self) -> PostedUrl:
        try:
            return PostedUrl(self._secret.read(), is_insecure=self._is_insecure)
        except SpecError as error:
            if error.field != "url":
                raise
            raise SpecError(error.message, self._secret.option) from None


def slack_document(message: Message) -> dict[str, Any]:
    """Return the message in Slack's format: a text for lists, and an attachment with a link."""
    title, text = _escaped(message.title), _escaped(message.text)[:_LONGEST_TEXT]
    attachment: dict[str, Any] = {"fallback": text, "title": title, "text": text}
    attachment["mrkdwn_in"] = []
    if message.link is not None:
        attachment["title_link"] = message.link
    if (sign := _SIGNS.get(message.notice.key.kind)) is not None:
        attachment["color"] = sign
    attachment["footer"] = f"castor {message.deployment[:8]}"
    attachment["ts"] = int(message.notice.at_seconds)
    return {"text": title, "attachments": [attachment]}


def _escaped(text: str) -> str:
    """Return a text in which no character is markup of Slack, such as a mention of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
