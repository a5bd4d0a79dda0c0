"""HTTP requests and answers, shared by all APIs."""

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
    """Reply to a request."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON


@dataclass(frozen=True, slots=True)
class Request:
    """Received request. `path` is still percent-encoded; `origin` is the server's own URL."""

    verb: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    content: bytes
    origin: str

    def first(self, name: str) -> str:
        """Return the first value of a query parameter."""
        return self.query.get(name, [""])[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Request that an API has recognised as one of its calls and not yet executed.

    Attributes:
        serve: executes the call; its argument is the error code of the operation, or "".
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
    """Return the body of a call.

    Raises:
        Refusal: the content is not a JSON object.
    """
    try:
        body = json.loads(content)
    except ValueError as error:
        raise unknown(f"{error}") from error
    if not isinstance(body, dict):
        raise unknown("The root must be an object.")
    return body


def json_answer(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


def json_refusal(refusal: Refusal) -> Answer:
    return json_answer(refusal.body(), refusal.status)
