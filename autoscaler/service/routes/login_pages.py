"""HTML pages of logins: plain, without scripts, styles or anything from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from autoscaler.service.access.browser_sessions import SESSION_SECONDS
from autoscaler.service.access.logins import LOGIN_PATH, LoginQuestion
from autoscaler.service.access.request_gate import ENCRYPTED_SESSION_COOKIE, SESSION_COOKIE
from autoscaler.wire.access_messages import NewToken

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of all pages: nothing is loaded, framed, kept or told to other sites."""

_SEE_OTHER: Final = 303
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Castor: {title}</title>
</head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""
_QUESTION: Final = """<p>A terminal asks to act as you.</p>
<dl>
<dt>Code</dt><dd><code>{code}</code></dd>
<dt>Terminal</dt><dd>{host}, which connects from {address}</dd>
<dt>You</dt><dd>{person} ({role})</dd>
</dl>
<p>Approve only if you ran <code>castor login</code> yourself, and your terminal shows this code.
Its name of its host is its own claim.</p>
<form method="post" action="{path}">
<input type="hidden" name="form_token" value="{form_token}">
<button name="decision" value="approve">Approve</button>
<button name="decision" value="deny">Deny</button>
</form>"""


def message_page(title: str, text: str, status: int = 200) -> Response:
    """Return a page with a heading and a paragraph."""
    return _page(title, f"<p>{escape(text)}</p>", status)


def question_page(question: LoginQuestion) -> Response:
    """Return the page that asks a person to approve or deny a login."""
    content = _QUESTION.format(
        code=escape(question.user_code),
        host=escape(question.terminal.host or "a host without a name"),
        address=escape(question.terminal.address),
        person=escape(question.person.name),
        role=escape(question.person.role),
        path=escape(LOGIN_PATH),
        form_token=escape(question.form_token),
    )
    return _page("Log a terminal in?", content, 200)


def begun_session(session: NewToken, next_address: str, is_encrypted: bool) -> Response:
    """Return a redirect to a page, with the cookie of a new session."""
    response = RedirectResponse(next_address, _SEE_OTHER, HEADERS)
    response.set_cookie(
        session_cookie(is_encrypted),
        session.token,
        max_age=int(SESSION_SECONDS),
        secure=is_encrypted,
        httponly=True,
        samesite="lax",
    )
    return response


def session_cookie(is_encrypted: bool) -> str:
    """Return the name of the cookie of sessions."""
    return ENCRYPTED_SESSION_COOKIE if is_encrypted else SESSION_COOKIE


def _page(title: str, content: str, status: int) -> Response:
    text = _PAGE.format(title=escape(title), content=content)
    return Response(text, status, HEADERS, media_type="text/html")
