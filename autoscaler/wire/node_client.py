"""Client of the HTTP API for node agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from httpcore import ConnectionInterface

from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.trial import TrialAnswer, TrialCall
from autoscaler.wire.codec import decode, encode, in_parts
from autoscaler.wire.http import Http, api_path
from autoscaler.wire.messages import Assignment, JoinReply, JoinRequest, NodeReply, NodeReport
from autoscaler.wire.study_messages import TrialCalls


class NodeClient:
    """Client of a controller for a node agent. Errors as in `Client`.

    Methods with a `job` also raise `Conflict` if the instance is assigned to another job by now.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        connections: ConnectionInterface | None = None,
        *,
        authority: str | None = None,
    ) -> None:
        self._http = Http(url, token, connections, authority)

    def join(self, request: JoinRequest) -> JoinReply:
        """Exchange the join token for an assignment and the first token of the instance.

        `NotAllowed`: the token is used, expired, or another instance's.
        """
        reply = decode(
            JoinReply, self._http.call("POST", "/v1/node/join", encode(JoinRequest, request))
        )
        self._http.use_token(reply.token)
        return reply

    @property
    def token(self) -> str | None:
        """The latest token from the controller; None before the instance has joined."""
        return self._http.token

    def assignment(self) -> Assignment:
        """Return the current assignment, for a restarted agent."""
        return self._http.get(Assignment, "/v1/node/assignment")

    def heartbeat(self, report: NodeReport, wait_seconds: float = 0.0) -> NodeReply:
        """Send a report and return the instance's instructions (long poll).

        The reply waits at most `wait_seconds` for an assignment to another job. A new token in it
        is used from then on.
        """
        body = encode(NodeReport, report)
        path = api_path("/v1/node/heartbeat", {"wait_seconds": wait_seconds})
        reply = decode(NodeReply, self._http.call("POST", path, body))
        if reply.token is not None:
            self._http.use_token(reply.token)
        return reply

    def grant(self, job: str) -> StorageGrant:
        """Return a new grant for the job's storage, with a later expiry.

        `NotFound`: the job's files are not in a cloud's storage.
        """
        return self._http.get(StorageGrant, api_path("/v1/node/grant", {"job": job}))

    def fetch_bundle(self, destination: Path) -> None:
        """Download the job's packed working directory."""
        self._http.download("/v1/node/bundle", destination)

    def begin_trial(self, started_seconds: float, job: str | None = None) -> int:
        """Acquire the instance's trial for this start of its script; return the incarnation.

        `Conflict`: a later incarnation holds the trial.
        """
        path = api_path("/v1/node/trial", {"started_seconds": started_seconds, "job": job})
        return decode(int, self._http.call("POST", path))

    def tell_trial(
        self, calls: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        """Send calls of the trial; return answers to calls with numbers above `after`.

        The result is empty if `wait_seconds` is 0, or if there are no answers within this time.
        `Conflict`: a later incarnation holds the trial.
        """
        *parts, last = in_parts(TrialCall, calls.calls)
        for part in parts:
            self._post_calls(replace(calls, calls=part), after, 0.0)
        return self._post_calls(replace(calls, calls=last), after, wait_seconds)

    def _post_calls(self, calls: TrialCalls, after: int, wait: float) -> tuple[TrialAnswer, ...]:
        path = api_path("/v1/node/trial/calls", {"after": after, "wait_seconds": wait})
        reply = self._http.call("POST", path, encode(TrialCalls, calls))
        return decode(tuple[TrialAnswer, ...], reply)

    def put_trial_file(self, sha256: str, file: BinaryIO) -> None:
        """Upload a file for the driver of the trial's study.

        `SpecError`: the file is too large, or does not match its hash.
        """
        self._http.upload(api_path("/v1/node/trial/files/{sha256}", sha256=sha256), file)

    def trial_answers(
        self, incarnation: int, after: int, wait_seconds: float, job: str | None = None
    ) -> tuple[TrialAnswer, ...]:
        """Return answers to calls with numbers above `after` (long poll).

        The result is empty if there are none within `wait_seconds`.
        """
        query = {
            "incarnation": incarnation,
            "after": after,
            "wait_seconds": wait_seconds,
            "job": job,
        }
        return self._http.get(tuple[TrialAnswer, ...], api_path("/v1/node/trial/answers", query))

    def append_log(self, offset: int, text: bytes, job: str | None = None) -> int:
        """Send log text that starts at `offset`; return the length of the controller's copy."""
        path = api_path("/v1/node/logs", {"offset": offset, "job": job})
        reply = self._http.call("POST", path, text, "application/octet-stream")
        return decode(int, reply)
