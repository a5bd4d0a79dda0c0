"""Stand-in for a controller: a real server of the agent's API."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from autoscaler.domain.errors import CastorError, NotAllowed, NotFound, SpecError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.report import Failure, TrainingReport
from autoscaler.domain.storage import StorageGrant
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import (
    Assignment,
    Fault,
    JoinReply,
    JoinRequest,
    NodeReply,
    NodeReport,
    Wanted,
)

OFFER = Offer(
    id="local-large",
    provider="local",
    instance_type="local-large",
    zone="local",
    purchase=Purchase.ON_DEMAND,
    devices=2,
    device_kind="cpu-core",
    usd_per_hour=Decimal("0.085"),
    boot_seconds=0.0,
    network_bytes_per_second=2e9,
)


class FakeController:
    """Controller of one job: attributes hold the received messages and the next replies."""

    def __init__(self, spec: JobSpec, checkpoints: Path, secrets: dict[str, str]) -> None:
        self.assignment = Assignment(
            job=spec.name,
            job_number=7,
            spec=spec,
            secrets=secrets,
            offer=OFFER,
            devices_used=1,
            attempt=1,
            lighthouse=None,
            peer_token="peer-token",
            checkpoint_directory=str(checkpoints),
            checkpoint_interval_seconds=300.0,
            heartbeat_timeout_seconds=1.5,
            collective_timeout_seconds=20.0,
            outputs_directory=str(checkpoints.with_name("outputs")),
        )
        self._first_job = spec.name
        self.reply = NodeReply(
            Wanted.RUN, attempt=1, start_seconds=None, devices_used=1, drain_seconds=60.0
        )
        self.lease_seconds = 600.0
        self.bundle: Path | None = None
        self.refuses_join = False
        self.refuses_assignment = False
        self.is_away = False
        self.loses_replies = False
        self.joins: list[JoinRequest] = []
        self.tokens: list[str] = []
        self.reports: list[NodeReport] = []
        self.assignments_asked = 0
        self.bundles_fetched = 0
        self.grants_asked = 0
        self.logs: dict[str, bytes] = {}
        self.log_at: dict[int, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.is_away = True
        self._server.shutdown()
        self._server.server_close()

    def want(self, **changes: Any) -> None:
        """Change fields of the replies to reports."""
        self.reply = replace(self.reply, **changes)

    def hand_over(self, job: str, **environment: str) -> None:
        """Assign the instance to another job from now on."""
        spec = replace(self.assignment.spec, name=job, environment=environment)
        self.assignment = replace(self.assignment, job=job, job_number=8, spec=spec)
        self.want(job=job)

    def keep_files_in(self, location: str, **grant: Any) -> None:
        """Keep the job's files in a storage, under a grant."""
        self.assignment = replace(
            self.assignment,
            checkpoint_directory="checkpoints",
            depot=f"{location}/checkpoints",
            grant=StorageGrant(location, **grant),
            outputs_directory=None,
        )

    def offer_lighthouse(self, address: str | None) -> None:
        self.assignment = replace(self.assignment, lighthouse=address)

    def of(self, instance: str) -> list[NodeReport]:
        return [report for report in self.reports if report.instance == instance]

    def phases(self, instance: str) -> list[InstancePhase]:
        """Return the phases of an instance in order, without repetitions."""
        phases: list[InstancePhase] = []
        for report in self.of(instance):
            if not phases or phases[-1] is not report.phase:
                phases.append(report.phase)
        return phases

    @property
    def failures(self) -> list[Failure]:
        return [report.failure for report in self.reports if report.failure is not None]

    @property
    def training(self) -> list[TrainingReport]:
        return [training for report in self.reports for training in report.reports]

    @property
    def log(self) -> str:
        return b"".join(self.logs.values()).decode()

    def answer(self, method: str, url: str, token: str, body: bytes) -> bytes:
        """Return the body of the answer to a request."""
        scheme, _, instance = token.partition(" lasting-")
        path = urlsplit(url).path
        if path == "/v1/node/join":
            return self._join(decode(JoinRequest, body))
        if scheme != "Bearer" or not instance:
            raise NotAllowed("no such token")
        match method, path:
            case "GET", "/v1/node/assignment":
                self.assignments_asked += 1
                if self.refuses_assignment:
                    raise SpecError("the controller has no variable TOKEN", "secrets.TOKEN")
                return encode(Assignment, self.assignment)
            case "GET", "/v1/node/grant":
                self.grants_asked += 1
                if self.assignment.grant is None:
                    raise NotFound("its files are not in storage")
                return encode(StorageGrant, self.assignment.grant)
            case "GET", "/v1/node/bundle":
                if self.bundle is None:
                    raise NotFound("the bundle was not uploaded")
                self.bundles_fetched += 1
                return self.bundle.read_bytes()
            case "POST", "/v1/node/logs":
                query = parse_qs(urlsplit(url).query)
                offset, job = int(query["offset"][0]), query["job"][0]
                is_first = job == self._first_job
                log = instance if is_first else f"{instance} of {job}"
                return encode(int, self._append(log, offset, body))
            case "POST", "/v1/node/heartbeat":
                self.tokens.append(token)
                self._record_report(decode(NodeReport, body))
                return encode(NodeReply, self.reply)
        raise NotFound(f"{method} {path}")

    def _join(self, request: JoinRequest) -> bytes:
        others = (join for join in self.joins if join.token == request.token)
        if self.refuses_join or any(join.key != request.key for join in others):
            raise NotAllowed("the join token has expired or was used before")
        self.joins.append(request)
        token = f"lasting-{request.instance}"
        reply = JoinReply(
            token, self.assignment, 0.1, self.lease_seconds, self.reply.drain_seconds
        )
        return encode(JoinReply, reply)

    def _record_report(self, report: NodeReport) -> None:
        """Record a report without what earlier reports of the same start contained."""
        earlier = self.of(report.instance)
        steps = [
            training.step
            for known in earlier
            if known.started_seconds == report.started_seconds
            for training in known.reports
        ]
        fresh = tuple(
            training for training in report.reports if training.step > max(steps, default=-1)
        )
        is_known = report.failure in [known.failure for known in earlier]
        failure = None if is_known else report.failure
        self.reports.append(replace(report, reports=fresh, failure=failure))

    def _append(self, instance: str, offset: int, text: bytes) -> int:
        copy = self.logs.setdefault(instance, b"")
        if offset <= len(copy) < offset + len(text):
            self.logs[instance] = copy[:offset] + text
        return len(self.logs[instance])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if controller.is_away:
                    self.close_connection = True
                    return
                token = self.headers.get("Authorization", "")
                try:
                    status, text = 200, controller.answer(self.command, self.path, token, body)
                except CastorError as error:
                    fault = Fault(type(error).__name__, str(error))
                    status, text = 400, encode(Fault, fault)
                if controller.loses_replies:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(text)

            do_GET = do_POST = _answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
