"""Forms of pages: their fields, after the check that a page of the session sent them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant

from autoscaler.domain.errors import NotAllowed
from autoscaler.service.access.browser_sessions import is_form_token
from autoscaler.service.access.request_gate import OPEN_PAGES, bearer_token, session_token
from autoscaler.service.routes.permits import routes_of
from autoscaler.service.versions import Precondition

FORM_TOKEN: Final = "form_token"
_MOST_FIELDS: Final = 200
_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class PageForm:
    """Route dependency that returns the fields of a form, the first of each name, stripped.

    A form of a browser session must carry the session's form token, so that no other site can
    send it. Requests with a bearer token need none, since no browser adds that by itself.
    """

    async def __call__(self, request: Request) -> dict[str, str]:
        """Return the fields.

        Raises:
            NotAllowed: the form is not one of this session's pages.
        """
        fields = parse_form(await request.body())
        require_form_token(request, fields.get(FORM_TOKEN, ""))
        return fields


def require_form_token(request: Request, presented: str) -> None:
    """Check that a form was made for the session that sends it.

    Raises:
        NotAllowed: it was not.
    """
    if bearer_token(request.scope) is not None:
        return
    session = session_token(request.scope)
    if session is None or not is_form_token(session, presented):
        raise NotAllowed(
            "this form is not one of your present session: go back, load the page again and "
            "repeat what you did"
        )


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form, the first of each name; empty for a body that is no form."""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}
    return {name: values[0].strip() for name, values in fields.items()}


def seen_version(fields: dict[str, str]) -> Precondition:
    """Return the precondition that an object has the version that its form showed.

    Without the field any version is changed, as by a request without `If-Match`.
    """
    version = fields.get("version")
    return Precondition(None if version is None else frozenset({version}))


def local_address(text: str) -> str:
    """Return an address on this controller to go to next; the first page for any other text.

    A browser takes "//" and a backslash for the begin of another host.
    """
    is_local = text.startswith("/") and not text.startswith("//")
    is_plain = "\\" not in text and text.isprintable()
    return text if is_local and is_plain else "/"


def require_forms(app: FastAPI) -> None:
    """Check that each route of a page that changes something checks its form's token.

    Raises:
        RuntimeError: a route takes forms of other sites.
    """
    for route in routes_of(app.routes):
        if route.path.startswith("/v1/"):
            continue
        if route.methods <= _READS or OPEN_PAGES.fullmatch(route.path):
            continue
        if not any(_forms_of(route.dependant)):
            raise RuntimeError(f"{route.path}: take its fields from PageForm or Upload")


def _forms_of(dependant: Dependant) -> Iterator[object]:
    """Yield the dependencies of a route that check a form's token."""
    if hasattr(dependant.call, "checks_form") or isinstance(dependant.call, PageForm):
        yield dependant.call
    for dependency in dependant.dependencies:
        yield from _forms_of(dependency)
