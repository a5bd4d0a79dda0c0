"""The one client of the HTTP API; what people, Python and node agents speak through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import httpx

from autoscaler.domain.job import JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.spending import DailyCost
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import TrialProgress
from autoscaler.domain.trial import GivenAnswer, StudyStop, TrialAnswer, TrialCall, WaitingCall
from autoscaler.wire.codec import decode, decode_printable, encode
from autoscaler.wire.http import Http
from autoscaler.wire.messages import (
    Assignment,
    Change,
    CostView,
    DecisionView,
    FleetView,
    ForecastView,
    Invitation,
    JobView,
    JoinReply,
    JoinRequest,
    LogPart,
    NodeReply,
    NodeReport,
    OffersView,
    Resumption,
    Submission,
)
from autoscaler.wire.parts import in_parts
from autoscaler.wire.plan_messages import PlanView
from autoscaler.wire.results import CheckpointView, OutputsView
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyBudget,
    StudyLease,
    StudyStatement,
    StudyView,
    TrialCalls,
)


class Client:
    """What a person, or a program of theirs, asks of a controller.

    Every method raises `Unavailable` when no controller answers or it has trouble of its own,
    `NotAllowed` when the token does not do, and what its own line says. A `url` that is none is
    a `SpecError`.
    """

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = Http(url, token, transport)

    def submit(self, spec: JobSpec, bundle: Path | None = None) -> JobView:
        """Run a job. `Conflict`: the name is in use; `SpecError`: it can't run here."""
        if bundle is not None and spec.bundle is not None:
            self.upload(spec.bundle, bundle)
        body = encode(Submission, Submission(spec))
        return decode_printable(JobView, self._http.call("POST", "/v1/jobs", body))

    def upload(self, sha256: str, bundle: Path) -> None:
        """Hand a bundle in, for jobs to come, if the controller does not have it yet."""
        if not self._http.exists(f"/v1/bundles/{sha256}"):
            with bundle.open("rb") as file:
                self._http.upload(f"/v1/bundles/{sha256}", file)

    def plan(self, spec: JobSpec) -> PlanView:
        """What would come of a job. `SpecError`: it can't be told, or nothing can run it."""
        body = encode(Submission, Submission(spec))
        return decode_printable(PlanView, self._http.call("POST", "/v1/plans", body))

    def jobs(self, include_ended: bool = True) -> tuple[JobView, ...]:
        """All jobs, the latest first."""
        path = f"/v1/jobs?include_ended={str(include_ended).lower()}"
        return self._http.get_printable(tuple[JobView, ...], path)

    def job(self, name: str) -> JobView:
        """One job by name or id. `UnknownJob`."""
        return self._http.get_printable(JobView, f"/v1/jobs/{name}")

    def change(self, name: str, change: Change) -> JobView:
        """Change a running job. `UnknownJob`, `Conflict`: it has ended."""
        return decode_printable(
            JobView, self._http.call("PATCH", f"/v1/jobs/{name}", encode(Change, change))
        )

    def stop(self, name: str) -> JobView:
        """End a job, with a checkpoint. `UnknownJob`, `Conflict`: it has ended."""
        return decode_printable(JobView, self._http.call("POST", f"/v1/jobs/{name}/stop"))

    def resume(self, name: str, resumption: Resumption, bundle: Path | None = None) -> JobView:
        """Run a stopped or failed job on from its newest checkpoint; return the new run.

        Raises:
            UnknownJob: there is no such job.
            Conflict: it can't be resumed.
            NotFound: it has no checkpoint.
            SpecError: the next run can't run here, or is another job.
        """
        spec = resumption.spec
        if bundle is not None and spec is not None and spec.bundle is not None:
            self.upload(spec.bundle, bundle)
        body = encode(Resumption, resumption)
        return decode_printable(JobView, self._http.call("POST", f"/v1/jobs/{name}/resume", body))

    def decisions(self, name: str, limit: int = 100) -> tuple[DecisionView, ...]:
        """What was decided for a job, the latest first. `UnknownJob`."""
        path = f"/v1/jobs/{name}/decisions?limit={limit}"
        return self._http.get_printable(tuple[DecisionView, ...], path)

    def forecast(self, name: str) -> tuple[ForecastView, ...]:
        """The job at every fixed size, as its model predicts it. `UnknownJob`."""
        return self._http.get_printable(tuple[ForecastView, ...], f"/v1/jobs/{name}/forecast")

    def logs(self, name: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """What the instances of a job wrote from these offsets on. `UnknownJob`."""
        body = encode(dict[str, int], dict(offsets))
        return decode(tuple[LogPart, ...], self._http.call("POST", f"/v1/jobs/{name}/logs", body))

    def outputs(self, name: str) -> OutputsView:
        """Return the list of a job's outputs. `UnknownJob`."""
        return self._http.get(OutputsView, f"/v1/jobs/{name}/outputs")

    def checkpoint(self, name: str) -> CheckpointView:
        """Return the newest checkpoint of a job. `UnknownJob`; `NotFound`: it has none."""
        return self._http.get(CheckpointView, f"/v1/jobs/{name}/checkpoint")

    def fetch(self, path: str, destination: Path, on_bytes: Callable[[int], None]) -> None:
        """Download one file of a job, by its `path` below ``/v1/jobs``; `on_bytes` hears the
        size of each part. `NotFound`: it was replaced by a newer one."""
        self._http.download(f"/v1/jobs/{path}", destination, on_bytes)

    def fleet(self) -> FleetView:
        """Offers, limits, instances."""
        return self._http.get_printable(FleetView, "/v1/fleet")

    def offers(self) -> OffersView:
        """What is offered, with the age and the source of each price."""
        return self._http.get_printable(OffersView, "/v1/offers")

    def programs(self) -> tuple[ProgramMemory, ...]:
        """What is remembered of all programs, by name."""
        return self._http.get_printable(tuple[ProgramMemory, ...], "/v1/programs")

    def program(self, name: str) -> ProgramMemory:
        """What is remembered of one program. `NotFound`: nothing."""
        return self._http.get_printable(ProgramMemory, f"/v1/programs/{name}")

    def forget_program(self, name: str) -> None:
        """Drop what is remembered of a program. `NotFound`: that is nothing."""
        self._http.call("DELETE", f"/v1/programs/{name}")

    def invite(self, person: str) -> Invitation:
        """Let a person in. `NotAllowed`: only the owner may; `SpecError`: that is no name."""
        return decode_printable(Invitation, self._http.call("POST", f"/v1/people/{person}"))

    def freeze(self) -> None:
        """Have nothing bought or given back until it is released."""
        self._http.call("POST", "/v1/freeze")

    def unfreeze(self) -> None:
        """Let the controller act on its decisions again."""
        self._http.call("POST", "/v1/unfreeze")

    def drain(self) -> None:
        """Stop every job, with a checkpoint; what they hold is given back."""
        self._http.call("POST", "/v1/drain")

    def costs(self) -> CostView:
        """What was spent."""
        return self._http.get_printable(CostView, "/v1/costs")

    def daily_costs(self, first: date, last: date) -> tuple[DailyCost, ...]:
        """What was spent on these days (UTC), the last one included, on each offer."""
        query = f"first={first.isoformat()}&last={last.isoformat()}"
        return self._http.get_printable(tuple[DailyCost, ...], f"/v1/costs/days?{query}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class StudyClient:
    """What is asked of a controller about one study, most of it by its driver. Errors as in
    `Client`."""

    def __init__(
        self, url: str, token: str, study: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = Http(url, token, transport)
        self.study = study
        self._path = f"/v1/studies/{study}"

    def lease(self, lease: StudyLease) -> StudyStop:
        """Drive the study from now on, or for longer; returns whether to end it. `Conflict`:
        another driver does."""
        body = encode(StudyLease, lease)
        return decode(StudyStop, self._http.call("POST", f"{self._path}/lease", body))

    def leave(self, holder: str) -> None:
        """Drive the study no more."""
        self._http.call("DELETE", f"{self._path}/lease?holder={holder}")

    def stop(self, at_once: bool) -> None:
        """Have the driver end the study: with the trials that run, or with them at once, to go on
        with another time. `Conflict`: nobody drives it."""
        self._http.call("POST", f"{self._path}/stop?at_once={str(at_once).lower()}")

    def calls(self, holder: str, wait_seconds: float, beyond: int = 0) -> tuple[WaitingCall, ...]:
        """Calls without an answer, in order, as soon as they are more than the `beyond` that are
        known; none if they are not for so long. `Conflict`: another driver has the study."""
        query = f"holder={holder}&wait_seconds={wait_seconds}&beyond={beyond}"
        return self._http.get(tuple[WaitingCall, ...], f"{self._path}/calls?{query}")

    def fetch_file(self, sha256: str, destination: Path) -> None:
        """A file that a trial handed in. `NotFound`: it did not, or it was taken."""
        self._http.download(f"{self._path}/files/{sha256}", destination)

    def remove_file(self, sha256: str) -> None:
        """Have the controller keep a file no more."""
        self._http.call("DELETE", f"{self._path}/files/{sha256}")

    def remove_checkpoints(self, trials: tuple[str, ...]) -> int:
        """Have the checkpoints of these trials removed, as their files are called; returns of how
        many there were some. `SpecError`: that is no name of a trial's."""
        body = encode(tuple[str, ...], trials)
        return decode(int, self._http.call("POST", f"{self._path}/checkpoints/removal", body))

    def answer(
        self, answers: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Answer calls; return the calls that wait then, as `calls` does.

        Without `wait_seconds` return none.

        Raises:
            Conflict: another driver has the study.
        """
        *parts, last = in_parts(GivenAnswer, answers.answers)
        for part in parts:
            self._answer(replace(answers, answers=part, ended=()), 0.0, 0)
        return self._answer(replace(answers, answers=last), wait_seconds, beyond)

    def _answer(
        self, answers: StudyAnswers, wait_seconds: float, beyond: int
    ) -> tuple[WaitingCall, ...]:
        path = f"{self._path}/answers?wait_seconds={wait_seconds}&beyond={beyond}"
        body = encode(StudyAnswers, answers)
        return decode(tuple[WaitingCall, ...], self._http.call("POST", path, body))

    def view(self) -> StudyView:
        """The study as the controller knows it. `NotFound`: it does not."""
        return self._http.get_printable(StudyView, self._path)

    def stays(self) -> tuple[StudyStay, ...]:
        """What its trials held and when."""
        return self._http.get(tuple[StudyStay, ...], f"{self._path}/stays")

    def set_budget(self, budget_usd: Decimal) -> None:
        """Let the study cost so much, whatever its driver states. `NotFound`: there is none."""
        body = encode(StudyBudget, StudyBudget(budget_usd))
        self._http.call("POST", f"{self._path}/budget", body)

    def state(self, statement: StudyStatement) -> None:
        """State the terms of the study. `Conflict`: another driver has the study."""
        for trials in in_parts(TrialProgress, statement.trials):
            body = encode(StudyStatement, replace(statement, trials=trials))
            self._http.call("POST", f"{self._path}/terms", body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class NodeClient:
    """What a node agent asks of its controller. Errors as in `Client`.

    Where a `job` is named, `Conflict` is also that the instance works for another one by now.
    """

    def __init__(
        self, url: str, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url = url
        self._transport = transport
        self._http = Http(url, token, transport)

    def join(self, request: JoinRequest) -> JoinReply:
        """Exchange the single-use token for work and a lasting token. `NotAllowed`: used up,
        expired, or another instance's."""
        reply = decode(
            JoinReply, self._http.call("POST", "/v1/node/join", encode(JoinRequest, request))
        )
        self._http.close()
        self._http = Http(self._url, reply.token, self._transport)
        return reply

    def assignment(self) -> Assignment:
        """The work again, for an agent that was restarted."""
        return self._http.get(Assignment, "/v1/node/assignment")

    def heartbeat(self, report: NodeReport, wait_seconds: float = 0.0) -> NodeReply:
        """Tell how things stand, hear what is wanted; of another job as soon as there is one, if
        that is within `wait_seconds`."""
        body = encode(NodeReport, report)
        path = f"/v1/node/heartbeat?wait_seconds={wait_seconds}"
        return decode(NodeReply, self._http.call("POST", path, body))

    def grant(self, job: str) -> StorageGrant:
        """The grant of the job's storage anew, good for longer. `NotFound`: its files are not in
        storage."""
        return self._http.get(StorageGrant, f"/v1/node/grant?job={job}")

    def fetch_bundle(self, destination: Path) -> None:
        """The job's packed working directory."""
        self._http.download("/v1/node/bundle", destination)

    def begin_trial(self, started_seconds: float, job: str | None = None) -> int:
        """Hold the instance's trial from this start of its script on; returns the incarnation.
        `Conflict`: a later one holds it."""
        path = f"/v1/node/trial?started_seconds={started_seconds!r}{_of(job)}"
        return decode(int, self._http.call("POST", path))

    def tell_trial(
        self, calls: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        """Hand in calls of the trial; return the answers to calls beyond number `after`.

        Without `wait_seconds`, or where there are no answers for so long, return none.

        Raises:
            Conflict: a later incarnation holds the trial.
        """
        *parts, last = in_parts(TrialCall, calls.calls)
        for part in parts:
            self._tell(replace(calls, calls=part), after, 0.0)
        return self._tell(replace(calls, calls=last), after, wait_seconds)

    def _tell(self, calls: TrialCalls, after: int, wait_seconds: float) -> tuple[TrialAnswer, ...]:
        path = f"/v1/node/trial/calls?after={after}&wait_seconds={wait_seconds}"
        body = encode(TrialCalls, calls)
        return decode(tuple[TrialAnswer, ...], self._http.call("POST", path, body))

    def put_trial_file(self, sha256: str, file: BinaryIO) -> None:
        """Hand in a file for the driver of the trial's study. `SpecError`: it is too large, or
        not what it says."""
        self._http.upload(f"/v1/node/trial/files/{sha256}", file)

    def trial_answers(
        self, incarnation: int, after: int, wait_seconds: float, job: str | None = None
    ) -> tuple[TrialAnswer, ...]:
        """The answers to calls beyond that number; none if there are none for so long."""
        query = f"incarnation={incarnation}&after={after}&wait_seconds={wait_seconds}{_of(job)}"
        return self._http.get(tuple[TrialAnswer, ...], f"/v1/node/trial/answers?{query}")

    def append_log(self, offset: int, text: bytes, job: str | None = None) -> int:
        """Hand in what was written from `offset` on; returns where the controller's copy ends."""
        path = f"/v1/node/logs?offset={offset}{_of(job)}"
        reply = self._http.call("POST", path, text, "application/octet-stream")
        return decode(int, reply)


def _of(job: str | None) -> str:
    """The part of a query that names a job, if it is known."""
    return "" if job is None else f"&job={job}"
