"""Front end of the fake Google Cloud: routes requests to projects and injects faults."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

from autoscaler.clock import Clock
from tests.fakes.faults import Fault, When
from tests.fakes.gcp import (
    identity,
    json_apis,
    metadata_service,
    storage_json,
    storage_xml,
    tokens,
)
from tests.fakes.gcp.buckets import Bucket
from tests.fakes.gcp.errors import Refusal, injected
from tests.fakes.gcp.http_messages import Answer, Prepared, Request, json_refusal, read
from tests.fakes.gcp.project import Project, Sent

# Calls with this token come from the fake itself: they meet no fault and are not counted.
CLOUD_TOKEN: Final = "cloud"


class Front:
    """WSGI application of all projects; a project is created when it is first named."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._projects: dict[str, Project] = {}
        self._lock = threading.RLock()
        self._numbers = itertools.count(100_000_000_000)

    def project(self, name: str) -> Project:
        """Return the project of this id."""
        with self._lock:
            return self._projects.get(name) or self.renew(name, self._clock)

    def renew(self, name: str, clock: Clock) -> Project:
        """Replace the project of this id by a new, empty one."""
        project = Project(name, str(next(self._numbers)), clock)
        self._projects[name] = project
        return project

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        answer = self._answered(read(environ))
        if answer is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            answer = Answer(200, b"")
        named = {name.lower() for name, _ in answer.headers}
        length = () if "content-length" in named else (("Content-Length", str(len(answer.body))),)
        start_response(
            f"{answer.status} {HTTPStatus(answer.status).phrase}", [*answer.headers, *length]
        )
        return [answer.body]

    def _answered(self, request: Request) -> Answer | None:
        """Return the answer to a request; None breaks the connection."""
        answer = metadata_service.answer_metadata_request(
            request, self.project
        ) or identity.answer_key_request(request)
        if answer is not None:
            return answer
        prepared = self._prepared(request)
        if prepared is None:
            refusal = Refusal(404, "notFound", f"The requested URL {request.path} was not found.")
            return json_refusal(refusal)
        if request.headers.get("authorization") == f"Bearer {CLOUD_TOKEN}":
            return _serve(prepared)
        project = prepared.project
        with project.lock:
            project.calls[prepared.action] += 1
            project.sent.append(Sent(prepared.action, prepared.parameters, prepared.body))
        fault = project.faults.next(prepared.action, prepared.parameters)
        if fault is None:
            return _serve(prepared)
        time.sleep(fault.delay_seconds)
        return _fail(prepared, fault)

    def _prepared(self, request: Request) -> Prepared | None:
        return (
            json_apis.prepare_json_call(request, self.project)
            or tokens.prepare_exchange(request, self._bucket)
            or storage_json.prepare_json_storage_call(request, self._bucket, self.project)
            or storage_xml.prepare_xml_storage_call(request, self._bucket, self.project("nobody"))
        )

    def _bucket(self, name: str) -> Bucket | None:
        """Return the bucket of this name; names are unique across projects."""
        for project in list(self._projects.values()):
            if name in project.buckets:
                bucket: Bucket = project.buckets[name]
                return bucket
        return None


def _serve(prepared: Prepared, failing: str = "") -> Answer:
    try:
        return prepared.serve(failing)
    except Refusal as refusal:
        return prepared.refuse(refusal)


def _fail(prepared: Prepared, fault: Fault) -> Answer | None:
    match fault.when:
        case When.REFUSED:
            return prepared.refuse(injected(fault.status, fault.code))
        case When.IN_REPLY:
            return _serve(prepared, fault.code)
        case When.LOST_BEFORE:
            return None
        case When.LOST_AFTER:
            _serve(prepared)
            return None
    answer = _serve(prepared)
    if fault.when is When.EMPTY:
        empty = b"{}" if answer.body.startswith(b"{") else b""
        return Answer(answer.status, empty, answer.headers)
    return Answer(answer.status, answer.body[: len(answer.body) // 2] or b"<", answer.headers)
