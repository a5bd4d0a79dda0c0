"""Calls of Google's services for which a client would be more than the call: JSON over HTTP."""

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
    """Send it, once; what it answers is a mapping.

    `options` are those of `requests`: `params`, `json`, `data`, `headers`.

    Raises:
        ProviderError: what the failure means.
    """
    found = _parsed(_sent(session, call, verb, url, answer_seconds, options), call)
    if not isinstance(found, dict):
        raise Unavailable(f"{call}: the reply can't be read")
    return found


def send_for_text(session: Session, call: Call, url: str, answer_seconds: float) -> str:
    """What is at `url`, as text.

    Raises:
        ProviderError: what the failure means.
    """
    return str(_sent(session, call, "GET", url, answer_seconds, {}).text)


def _sent(
    session: Session, call: Call, verb: str, url: str, answer_seconds: float, options: Any
) -> Any:
    try:
        reply = session.http.request(verb, url, timeout=answer_seconds, **options)
        if reply.status_code >= 400:
            raise _refused(reply)
    except CALL_ERRORS as error:
        raise provider_error(error, call) from error
    return reply


def _refused(reply: Any) -> GoogleAPICallError:
    """Google's own words, or those of OAuth (RFC 6749, 5.2), which the token service has."""
    try:
        told = reply.json()
    except ValueError:
        told = {}
    code = told.get("error") if isinstance(told, dict) else None
    if not isinstance(code, str):
        return from_http_response(reply)
    words = f"{code}: {told.get('error_description', '')}".rstrip(": ")
    return from_http_status(reply.status_code, words)


def _parsed(reply: Any, call: Call) -> object:
    if not reply.content:
        return {}
    try:
        found: object = reply.json()
    except ValueError as error:
        raise Unavailable(f"{call}: the reply can't be read") from error
    return found
