"""Calls of Google's services over HTTP with JSON, where a client would be larger than the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.api_core.exceptions import (
    GoogleAPICallError,
    from_http_response,
    from_http_status,
)

from autoscaler.domain.errors import Unavailable
from providers.gcp.errors import CALL_ERRORS, Call, provider_error
from providers.gcp.session import Session


def send(
    session: Session,
    call: Call,
    verb: str,
    url: str,
    answer_seconds: float,
    **options: Any,
) -> Mapping[str, Any]:
    """Send a request once and return the JSON object of its reply.

    `options` are keyword arguments of `requests`: `params`, `json`, `data`, `headers`.

    Raises:
        ProviderError: the call failed; its type gives the cause.
    """
    parsed = _parse(_request(session, call, verb, url, answer_seconds, options), call)
    if not isinstance(parsed, dict):
        raise Unavailable(f"{call}: the reply can't be read")
    return parsed


def send_for_text(session: Session, call: Call, url: str, answer_seconds: float) -> str:
    """Return the text at `url`.

    Raises:
        ProviderError: the call failed; its type gives the cause.
    """
    return str(_request(session, call, "GET", url, answer_seconds, {}).text)


def _request(
    session: Session, call: Call, verb: str, url: str, answer_seconds: float, options: Any
) -> Any:
    try:
        reply = session.http.request(verb, url, timeout=answer_seconds, **options)
        if reply.status_code >= 400:
            raise _error_of(reply)
    except CALL_ERRORS as error:
        raise provider_error(error, call) from error
    return reply


def _error_of(reply: Any) -> GoogleAPICallError:
    """Return the error in a reply, in Google's form or in OAuth's (RFC 6749, 5.2)."""
    try:
        body = reply.json()
    except ValueError:
        body = {}
    code = body.get("error") if isinstance(body, dict) else None
    if not isinstance(code, str):
        return from_http_response(reply)
    message = f"{code}: {body.get('error_description', '')}".rstrip(": ")
    return from_http_status(reply.status_code, message)


def _parse(reply: Any, call: Call) -> object:
    if not reply.content:
        return {}
    try:
        parsed: object = reply.json()
    except ValueError as error:
        raise Unavailable(f"{call}: the reply can't be read") from error
    return parsed
