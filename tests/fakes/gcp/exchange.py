"""Requests and answers of HTTP, whichever API they are of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.fakes.gcp.errors import Refusal, unknown
from tests.fakes.gcp.project import Body, Project

JSON: Final = (("Content-Type", "application/json; charset=UTF-8"),)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON


@dataclass(frozen=True, slots=True)
class Request:
    """What came in. `path` is still quoted; `origin` is where the server was found."""

    verb: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    content: bytes
    origin: str

    def first(self, name: str) -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that an API has understood to be one of its calls, with nothing done yet.

    Attributes:
        serve: does it; it is given the code that the operation is to fail with, or "".
        refuse: words a refusal as this API does.
    """

    action: str
    project: Project
    parameters: dict[str, Any]
    body: Body
    serve: Callable[[str], Answer]
    refuse: Callable[[Refusal], Answer]


def read(environ: Mapping[str, Any]) -> Request:
    url = urlsplit(environ["REQUEST_URI"])
    is_chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "")
    length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    }
    return Request(
        environ["REQUEST_METHOD"],
        url.path,
        parse_qs(url.query, keep_blank_values=True),
        headers,
        environ["wsgi.input"].read(length),
        f"http://{environ['HTTP_HOST']}",
    )


def read_json(content: bytes) -> Body:
    """The body of a call.

    Raises:
        Refusal: it is none.
    """
    try:
        body = json.loads(content)
    except ValueError as error:
        raise unknown(f"{error}") from error
    if not isinstance(body, dict):
        raise unknown("The root must be an object.")
    return body


def in_json(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


def refused_in_json(refusal: Refusal) -> Answer:
    return in_json(refusal.body(), refusal.status)
