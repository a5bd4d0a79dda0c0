"""Clients of the HTTP API: for users, and for drivers of studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

from httpcore import ConnectionInterface

from autoscaler.domain.access import MYSELF, AccessToken, Person
from autoscaler.domain.audit import AuditEntry
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.spending import DailyCost
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import TrialProgress
from autoscaler.domain.trial import GivenAnswer, StudyStop, WaitingCall
from autoscaler.wire.access_messages import (
    BrowserLink,
    Invitation,
    InvitationRequest,
    NewPerson,
    NewToken,
    PersonChange,
    PersonView,
    TokenRequest,
)
from autoscaler.wire.budget_messages import BudgetRequest, BudgetView
from autoscaler.wire.codec import decode, decode_printable, encode, in_parts
from autoscaler.wire.cost_messages import (
    BillComparison,
    BillComparisonView,
    CounterfactualView,
    ReceiptView,
)
from autoscaler.wire.http import Http, Page, api_path, path_part, with_query
from autoscaler.wire.messages import (
    Change,
    CostView,
    DecisionView,
    FleetView,
    ForecastView,
    JobView,
    LogPart,
    OffersView,
    Resumption,
    Submission,
)
from autoscaler.wire.notification_messages import DeliveryView, NotificationsView, TestMessage
from autoscaler.wire.outlook_messages import (
    ChangePlan,
    CurveView,
    HistoryView,
    Hypothesis,
    OutlookView,
    WhatIfView,
)
from autoscaler.wire.plan_messages import PlanView, SubmissionPlan
from autoscaler.wire.results import CheckpointView, OutputsView
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyBudget,
    StudyHistoryView,
    StudyLease,
    StudyStatement,
    StudySummary,
    StudyView,
)

Value = TypeVar("Value")
_PAGE_ITEMS: Final = 1000


@dataclass(frozen=True, slots=True)
class JobList:
    """Filters and order of a list of jobs; None, or no phases, permit any.

    Attributes:
        include_ended: whether jobs that have ended are listed, too.
        phases: phases of the jobs.
        person: owner of the jobs.
        team: team of the jobs.
        study: study whose trials are listed.
        text: part of the names.
        order: "newest", "oldest" or "name".
        limit: most jobs of a page, at most 1000.
    """

    include_ended: bool = True
    phases: tuple[JobPhase, ...] = ()
    person: str | None = None
    team: str | None = None
    study: str | None = None
    text: str | None = None
    order: str = "newest"
    limit: int = 1000


class Client:
    """Client of a controller for users and their programs.

    Every method raises `Unavailable` if no controller answers or the controller fails, and
    `NotAllowed` if the token is not accepted. Other errors are listed with each method. The
    constructor raises `SpecError` if `url` is malformed. `authority` has the only certificates to
    trust, as PEM; None: those of the system.
    """

    def __init__(
        self,
        url: str,
        token: str,
        connections: ConnectionInterface | None = None,
        *,
        authority: str | None = None,
    ) -> None:
        self._http = Http(url, token, connections, authority)

    def submit(
        self, spec: JobSpec, bundle: Path | None = None, *, driver: str | None = None
    ) -> JobView:
        """Submit a job, as the `driver` of its study if that is not None.

        Raises:
            Conflict: the name is in use, or another driver leads the study.
            SpecError: the job can't run here.
        """
        if bundle is not None and spec.bundle is not None:
            self.upload(spec.bundle, bundle)
        body = encode(Submission, Submission(spec))
        path = with_query("/v1/jobs", {"driver": driver})
        return decode_printable(JobView, self._http.create(path, body))

    def try_submit(self, spec: JobSpec) -> SubmissionPlan:
        """Return what `submit` would submit, and its plan. Errors as `submit`."""
        body = encode(Submission, Submission(spec))
        reply = self._http.call("POST", "/v1/jobs?dry_run=true", body)
        return decode_printable(SubmissionPlan, reply)

    def upload(self, sha256: str, bundle: Path) -> None:
        """Upload a bundle for later jobs, unless the controller has it already."""
        if not self._http.exists(api_path("/v1/bundles/{sha256}", sha256=sha256)):
            with bundle.open("rb") as file:
                self._http.upload(api_path("/v1/bundles/{sha256}", sha256=sha256), file)

    def plan(self, spec: JobSpec) -> PlanView:
        """Return the predicted plan of a job. `SpecError`: no offer can run it."""
        body = encode(Submission, Submission(spec))
        return decode_printable(PlanView, self._http.call("POST", "/v1/plans", body))

    def jobs(self, include_ended: bool = True) -> tuple[JobView, ...]:
        """Return all jobs, the latest first, which are read in pages."""

        def read(size: int, cursor: str | None) -> Page[JobView]:
            return self.job_page(JobList(include_ended=include_ended, limit=size), cursor)

        return _items_of_pages(read)

    def job_page(self, wanted: JobList, cursor: str | None = None) -> Page[JobView]:
        """Return a page of a list of jobs; `cursor` None: the first. `SpecError`: a bad filter."""
        query = {
            "include_ended": str(wanted.include_ended).lower(),
            "limit": wanted.limit,
            "phase": [str(phase) for phase in wanted.phases],
            "person": wanted.person,
            "team": wanted.team,
            "study": wanted.study,
            "q": wanted.text,
            "sort": wanted.order,
            "cursor": cursor,
        }
        return self._http.get_page(JobView, api_path("/v1/jobs", query))

    def job(self, name: str) -> JobView:
        """Return a job by name or id. `UnknownJob`."""
        return self._http.get_printable(JobView, api_path("/v1/jobs/{name}", name=name))

    def spec(self, name: str) -> Submission:
        """Return what submits a job again. `UnknownJob`; `Forbidden`: the job is another's.

        Its texts are as they were submitted, so they may not be safe to print.
        """
        return self._http.get(Submission, api_path("/v1/jobs/{name}/spec", name=name))

    def change(self, name: str, change: Change, *, version: str | None = None) -> JobView:
        """Change a running job.

        Raises:
            UnknownJob: there is no such job.
            Conflict: the job has ended.
            Outdated: the job has another version than `version`; None permits any.
        """
        body = encode(Change, change)
        reply = self._http.call(
            "PATCH", api_path("/v1/jobs/{name}", name=name), body, version=version
        )
        return decode_printable(JobView, reply)

    def try_change(self, name: str, change: Change, *, version: str | None = None) -> ChangePlan:
        """Return the job as `change` would change it, and its next plan. Errors as `change`."""
        path = api_path("/v1/jobs/{name}", {"dry_run": "true"}, name=name)
        reply = self._http.call("PATCH", path, encode(Change, change), version=version)
        return decode_printable(ChangePlan, reply)

    def stop(self, name: str, *, version: str | None = None, driver: str | None = None) -> JobView:
        """Stop a job, with a checkpoint, as the `driver` of its study if that is not None.

        Errors as `change`. `Conflict`: another driver leads the study, too.
        """
        path = with_query(api_path("/v1/jobs/{name}/stop", name=name), {"driver": driver})
        reply = self._http.call("POST", path, version=version)
        return decode_printable(JobView, reply)

    def resume(
        self,
        name: str,
        resumption: Resumption,
        bundle: Path | None = None,
        *,
        version: str | None = None,
    ) -> JobView:
        """Resume a stopped or failed job from its newest checkpoint, and return the new run.

        Raises:
            UnknownJob: there is no such job.
            Conflict: the job can't be resumed.
            NotFound: the job has no checkpoint.
            SpecError: the new run can't run here, or its spec is of another job.
            Outdated: the job has another version than `version`; None permits any.
        """
        spec = resumption.spec
        if bundle is not None and spec is not None and spec.bundle is not None:
            self.upload(spec.bundle, bundle)
        body = encode(Resumption, resumption)
        reply = self._http.create(api_path("/v1/jobs/{name}/resume", name=name), body, version)
        return decode_printable(JobView, reply)

    def decisions(self, name: str, limit: int | None = 100) -> tuple[DecisionView, ...]:
        """Return the `limit` latest decisions for a job, the latest first; None: all.

        `UnknownJob`: there is no such job.
        """
        return self._listed(DecisionView, api_path("/v1/jobs/{name}/decisions", name=name), limit)

    def forecast(self, name: str) -> tuple[ForecastView, ...]:
        """Return predictions of the job's fitted model for every fixed size. `UnknownJob`."""
        return self._http.get_printable(
            tuple[ForecastView, ...], api_path("/v1/jobs/{name}/forecast", name=name)
        )

    def curve(self, name: str) -> CurveView:
        """Return the predicted goodput of a job for each offer and size. `UnknownJob`."""
        return self._http.get_printable(CurveView, api_path("/v1/jobs/{name}/curve", name=name))

    def history(self, name: str, since_seconds: float = 0.0, points: int = 300) -> HistoryView:
        """Return series of a job over time. `UnknownJob`."""
        query = {"since_seconds": since_seconds, "points": points}
        path = api_path("/v1/jobs/{name}/history", query, name=name)
        return self._http.get_printable(HistoryView, path)

    def outlook(self, name: str) -> OutlookView:
        """Return the predicted finish and cost of a job. `UnknownJob`."""
        return self._http.get_printable(
            OutlookView, api_path("/v1/jobs/{name}/outlook", name=name)
        )

    def assume(self, name: str, assumed: Hypothesis) -> WhatIfView:
        """Return the outlook of a job under another objective. `Conflict`: the job has ended."""
        body = encode(Hypothesis, assumed)
        return decode_printable(
            WhatIfView,
            self._http.call("POST", api_path("/v1/jobs/{name}/what-if", name=name), body),
        )

    def logs(self, name: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """Return the logs of a job's instances from these offsets on. `UnknownJob`."""
        body = encode(dict[str, int], dict(offsets))
        return decode(
            tuple[LogPart, ...],
            self._http.call("POST", api_path("/v1/jobs/{name}/logs", name=name), body),
        )

    def outputs(self, name: str) -> OutputsView:
        """Return the manifests of a job's outputs. `UnknownJob`."""
        return self._http.get(OutputsView, api_path("/v1/jobs/{name}/outputs", name=name))

    def checkpoint(self, name: str) -> CheckpointView:
        """Return the newest checkpoint of a job. `UnknownJob`; `NotFound`: the job has none."""
        return self._http.get(CheckpointView, api_path("/v1/jobs/{name}/checkpoint", name=name))

    def fetch(self, path: str, destination: Path, on_bytes: Callable[[int], None]) -> None:
        """Download a file of a job from `path` below ``/v1/jobs``: names with ``/`` between.

        `on_bytes` is called with the size of each part. `NotFound`: a newer file replaced it.
        """
        names = "/".join(path_part(name, "path") for name in path.split("/"))
        self._http.download(f"/v1/jobs/{names}", destination, on_bytes)

    def fleet(self) -> FleetView:
        """Return the fleet: offers, limits, instances and the controller's state."""
        return self._http.get_printable(FleetView, "/v1/fleet")

    def offers(self) -> OffersView:
        """Return all offers, with age and source of each price."""
        return self._http.get_printable(OffersView, "/v1/offers")

    def programs(self) -> tuple[ProgramMemory, ...]:
        """Return the measurements of all programs, sorted by name."""
        return self._listed(ProgramMemory, "/v1/programs")

    def program(self, name: str) -> ProgramMemory:
        """Return the measurements of a program. `NotFound`: there are none."""
        return self._http.get_printable(ProgramMemory, api_path("/v1/programs/{name}", name=name))

    def forget_program(self, name: str) -> None:
        """Delete the measurements of a program. `NotFound`: there are none."""
        self._http.call("DELETE", api_path("/v1/programs/{name}", name=name))

    def budgets(self) -> tuple[BudgetView, ...]:
        """Return all shared budgets with their spending, sorted by scope."""
        return self._http.get_printable(tuple[BudgetView, ...], "/v1/budgets")

    def budget(self, scope: str) -> BudgetView:
        """Return the budget of a scope with its spending. `NotFound`: there is none."""
        return self._http.get_printable(BudgetView, api_path("/v1/budgets/{scope}", scope=scope))

    def set_budget(
        self, scope: str, request: BudgetRequest, *, version: str | None = None
    ) -> BudgetView:
        """Set the budget of a scope.

        Raises:
            Forbidden: the requester is not an admin.
            SpecError: a value is invalid.
            Outdated: the budget has another version than `version`; None permits any.
        """
        body = encode(BudgetRequest, request)
        path = api_path("/v1/budgets/{scope}", scope=scope)
        return decode_printable(BudgetView, self._http.call("PUT", path, body, version=version))

    def remove_budget(self, scope: str, *, version: str | None = None) -> None:
        """Remove the budget of a scope. `NotFound`: there is none; others as `set_budget`."""
        self._http.call("DELETE", api_path("/v1/budgets/{scope}", scope=scope), version=version)

    def invite(self, person: str, request: InvitationRequest | None = None) -> Invitation:
        """Create a token for a person. `Forbidden`: not an admin; `SpecError`: bad name."""
        body = encode(InvitationRequest, request or InvitationRequest())
        return decode_printable(
            Invitation, self._http.create(api_path("/v1/people/{name}", name=person), body)
        )

    def browser_link(self) -> BrowserLink:
        """Return a link that signs a browser in once. `Forbidden`: with a service token."""
        return decode_printable(BrowserLink, self._http.call("POST", "/v1/browser-links"))

    def people(self) -> tuple[PersonView, ...]:
        """Return all people. `Forbidden`: not an admin."""
        return self._listed(PersonView, "/v1/people")

    def add_person(self, request: NewPerson) -> Person:
        """Add a person without a token. `Forbidden`; `Conflict`: the person is known."""
        body = encode(NewPerson, request)
        return decode_printable(Person, self._http.create("/v1/people", body))

    def change_person(
        self, name: str, change: PersonChange, *, version: str | None = None
    ) -> Person:
        """Change role and team of a person.

        Raises:
            Forbidden: the requester is not an admin.
            NotFound: there is no such person.
            Outdated: the person has another version than `version`; None permits any.
        """
        body = encode(PersonChange, change)
        reply = self._http.call(
            "PATCH", api_path("/v1/people/{name}", name=name), body, version=version
        )
        return decode_printable(Person, reply)

    def remove_person(self, name: str, *, version: str | None = None) -> None:
        """Remove a person and revoke all tokens. Errors as `change_person`."""
        self._http.call("DELETE", api_path("/v1/people/{name}", name=name), version=version)

    def tokens(self, person: str = MYSELF) -> tuple[AccessToken, ...]:
        """Return the tokens of a person. `Forbidden`: another one's, and not an admin."""
        return self._http.get_printable(
            tuple[AccessToken, ...], api_path("/v1/people/{name}/tokens", name=person)
        )

    def create_token(self, request: TokenRequest, person: str = MYSELF) -> NewToken:
        """Create a token. `Conflict`: the name is in use; `Forbidden`: above one's own role."""
        body = encode(TokenRequest, request)
        reply = self._http.create(api_path("/v1/people/{name}/tokens", name=person), body)
        return decode_printable(NewToken, reply)

    def rotate_token(
        self, name: str, grace_seconds: float = 0.0, person: str = MYSELF
    ) -> NewToken:
        """Replace a token; the earlier one is valid for `grace_seconds` more. `NotFound`."""
        query = {"grace_seconds": grace_seconds}
        path = api_path(
            "/v1/people/{name}/tokens/{token}/rotation", query, name=person, token=name
        )
        return decode_printable(NewToken, self._http.create(path))

    def revoke_token(self, name: str, person: str = MYSELF) -> None:
        """Revoke a token. `NotFound`: there is none of this name."""
        self._http.call(
            "DELETE", api_path("/v1/people/{name}/tokens/{token}", name=person, token=name)
        )

    def audit(
        self, since_seconds: float = 0.0, below: int | None = None, limit: int | None = 100
    ) -> tuple[AuditEntry, ...]:
        """Return the `limit` latest rows of the audit log, the latest first; None: all.

        `Forbidden`: the requester is not an admin.
        """
        return self._listed(
            AuditEntry, "/v1/audit", limit, since_seconds=since_seconds, below=below
        )

    def notifications(self, limit: int | None = 50) -> NotificationsView:
        """Return the targets of notices, and the `limit` latest deliveries; None: all.

        `Forbidden`: the requester is not an operator.
        """
        views: list[NotificationsView] = []

        def read(size: int, cursor: str | None) -> Page[DeliveryView]:
            path = api_path("/v1/notifications", {"limit": size, "cursor": cursor})
            view, following = self._http.get_part(NotificationsView, path)
            views.append(view)
            return Page(view.deliveries, following)

        deliveries = _items_of_pages(read, limit)
        return replace(views[0], deliveries=deliveries)

    def test_notifications(self) -> TestMessage:
        """Send a test message to each target. `Conflict`: there is none; `Forbidden`."""
        return decode_printable(TestMessage, self._http.call("POST", "/v1/notifications/test"))

    def freeze(self) -> None:
        """Stop all launches and releases until `unfreeze`."""
        self._http.call("POST", "/v1/freeze")

    def unfreeze(self) -> None:
        """Let the controller carry out its decisions again."""
        self._http.call("POST", "/v1/unfreeze")

    def drain(self) -> None:
        """Stop every job, with a checkpoint, and release its instances."""
        self._http.call("POST", "/v1/drain")

    def studies(self) -> tuple[StudySummary, ...]:
        """Return all studies, sorted by name."""
        return self._listed(StudySummary, "/v1/studies")

    def costs(self) -> CostView:
        """Return all spending so far."""
        return self._http.get_printable(CostView, "/v1/costs")

    def receipt(self, name: str) -> ReceiptView:
        """Return what a job's cost was for. `UnknownJob`: there is no such job."""
        return self._http.get_printable(
            ReceiptView, api_path("/v1/jobs/{name}/receipt", name=name)
        )

    def counterfactual(self, name: str) -> CounterfactualView:
        """Return what other rules would have paid for a job. `UnknownJob`; `Conflict`: too early.

        The answer takes some seconds for a long journal.
        """
        return self._http.get_printable(
            CounterfactualView, api_path("/v1/jobs/{name}/counterfactual", name=name)
        )

    def download_focus(self, first: date, last: date, destination: Path) -> None:
        """Download all costs from `first` to `last` (UTC days, inclusive) as a FOCUS file.

        `OSError`: the file can't be written.
        """
        self._http.download(api_path("/v1/costs/focus", _days(first, last)), destination)

    def daily_costs(self, first: date, last: date) -> tuple[DailyCost, ...]:
        """Return spending per day and offer from `first` to `last` (UTC days, inclusive)."""
        path = api_path("/v1/costs/days", _days(first, last))
        return self._http.get_printable(tuple[DailyCost, ...], path)

    def bills(self) -> tuple[BillComparisonView, ...]:
        """Return the last comparison of the ledger with the bill of each cloud."""
        return self._http.get_printable(tuple[BillComparisonView, ...], "/v1/costs/bills")

    def keep_bill(self, provider: str, comparison: BillComparison) -> BillComparisonView:
        """Keep a comparison of the ledger with a cloud's bill for all to see.

        Raises:
            Forbidden: the requester is no operator.
            SpecError: a value is invalid.
        """
        body = encode(BillComparison, comparison)
        path = api_path("/v1/costs/bills/{provider}", provider=provider)
        return decode_printable(BillComparisonView, self._http.call("PUT", path, body))

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the controller."""
        return self._http.get(dict[str, Any], "/v1/openapi.json")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _listed(
        self, kind: type[Value], path: str, most: int | None = None, **filters: object
    ) -> tuple[Value, ...]:
        """Return the first `most` items of a list that is read in pages; None: all."""

        def read(size: int, cursor: str | None) -> Page[Value]:
            query = {"limit": size, "cursor": cursor, **filters}
            return self._http.get_page(kind, with_query(path, query))

        return _items_of_pages(read, most)


class StudyClient:
    """Client of a controller for one study, mostly used by its driver. Errors as in `Client`."""

    def __init__(
        self,
        url: str,
        token: str,
        study: str,
        connections: ConnectionInterface | None = None,
        *,
        authority: str | None = None,
    ) -> None:
        self._http = Http(url, token, connections, authority)
        self.study = study
        self._path = api_path("/v1/studies/{study}", study=study)

    def lease(self, lease: StudyLease, renews: bool = False) -> StudyStop:
        """Acquire or renew the study's lease, and return whether the study must stop.

        A holder that `renews` has held the lease before. `Conflict`: another driver holds the
        lease, or has held it since.
        """
        body = encode(StudyLease, lease)
        path = with_query(f"{self._path}/lease", {"renews": "true" if renews else None})
        return decode(StudyStop, self._http.call("POST", path, body))

    def history(self, points: int = 300) -> StudyHistoryView:
        """Return the course of the study over time. `NotFound`."""
        return self._http.get_printable(
            StudyHistoryView, with_query(f"{self._path}/history", {"points": points})
        )

    def leave(self, holder: str) -> None:
        """Release the study's lease."""
        self._http.call("DELETE", with_query(f"{self._path}/lease", {"holder": holder}))

    def stop(self, at_once: bool) -> None:
        """Tell the driver to stop the study.

        Running trials continue to their ends or, with `at_once`, are stopped and can be resumed
        later. `Conflict`: no driver holds the lease.
        """
        query = {"at_once": str(at_once).lower()}
        self._http.call("POST", with_query(f"{self._path}/stop", query))

    def calls(self, holder: str, wait_seconds: float, beyond: int = 0) -> tuple[WaitingCall, ...]:
        """Return all calls without an answer, in order (long poll).

        The reply comes once there are more than `beyond` calls; after `wait_seconds` it is empty.
        `Conflict`: another driver holds the lease.
        """
        query = {"holder": holder, "wait_seconds": wait_seconds, "beyond": beyond}
        return self._http.get(tuple[WaitingCall, ...], with_query(f"{self._path}/calls", query))

    def fetch_file(self, sha256: str, destination: Path) -> None:
        """Download a file that a trial uploaded. `NotFound`: there is no such file any more."""
        self._http.download(self._file(sha256), destination)

    def remove_file(self, sha256: str) -> None:
        """Delete a file that a trial uploaded."""
        self._http.call("DELETE", self._file(sha256))

    def remove_checkpoints(self, trials: tuple[str, ...]) -> int:
        """Delete the checkpoints of trials by the names of their files.

        Returns the number of trials that had checkpoints. `SpecError`: a name is not a trial's.
        """
        body = encode(tuple[str, ...], trials)
        return decode(int, self._http.call("POST", f"{self._path}/checkpoints/removal", body))

    def answer(
        self, answers: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Answer calls of trials; return calls without an answer, as `calls` does.

        The result is empty if `wait_seconds` is 0. `Conflict`: another driver holds the lease.
        """
        *parts, last = in_parts(GivenAnswer, answers.answers)
        for part in parts:
            self._post_answers(replace(answers, answers=part, ended=()), 0.0, 0)
        return self._post_answers(replace(answers, answers=last), wait_seconds, beyond)

    def _file(self, sha256: str) -> str:
        return f"{self._path}/files/{path_part(sha256, 'sha256')}"

    def _post_answers(
        self, answers: StudyAnswers, wait_seconds: float, beyond: int
    ) -> tuple[WaitingCall, ...]:
        query = {"wait_seconds": wait_seconds, "beyond": beyond}
        path = with_query(f"{self._path}/answers", query)
        body = encode(StudyAnswers, answers)
        return decode(tuple[WaitingCall, ...], self._http.call("POST", path, body))

    def view(self) -> StudyView:
        """Return the study. `NotFound`: the controller does not know it."""
        return self._http.get_printable(StudyView, self._path)

    def stays(self) -> tuple[StudyStay, ...]:
        """Return the intervals in which the study's trials held instances."""
        return self._http.get(tuple[StudyStay, ...], f"{self._path}/stays")

    def set_budget(self, budget_usd: Decimal, *, version: str | None = None) -> None:
        """Set the study's budget; it overrides the driver's terms.

        Raises:
            NotFound: there is no such study.
            Outdated: the study has another version than `version`; None permits any.
        """
        body = encode(StudyBudget, StudyBudget(budget_usd))
        self._http.call("POST", f"{self._path}/budget", body, version=version)

    def state(self, statement: StudyStatement) -> None:
        """Send terms and changed trials of the study. `Conflict`: another driver has its lease."""
        for trials in in_parts(TrialProgress, statement.trials):
            body = encode(StudyStatement, replace(statement, trials=trials))
            self._http.call("POST", f"{self._path}/terms", body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _items_of_pages(
    read: Callable[[int, str | None], Page[Value]], most: int | None = None
) -> tuple[Value, ...]:
    """Return the first `most` items of a list; None: all.

    `read` returns a page of a size after a cursor, None for the first page.
    """
    items: list[Value] = []
    cursor: str | None = None
    while True:
        left = _PAGE_ITEMS if most is None else most - len(items)
        page = read(min(left, _PAGE_ITEMS), cursor)
        items += page.items
        cursor = page.cursor
        if cursor is None or (most is not None and len(items) >= most):
            return tuple(items[:most])


def _days(first: date, last: date) -> dict[str, str]:
    """Return the query of a span of UTC days."""
    return {"first": first.isoformat(), "last": last.isoformat()}
