"""Forms that change a job: another objective, stop, resume, and to submit an ended one again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, SpecError
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.job_rules import as_submitted
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.submissions import Submissions, job_text
from autoscaler.service.pages.fields import (
    OBJECTIVES,
    bounds_of,
    change_of,
    command_of,
    job_fields,
    objective_of,
    priority_of,
)
from autoscaler.service.pages.forms import PageForm, seen_version
from autoscaler.service.pages.rendering import HEADERS, Pages
from autoscaler.service.routes.bodies import change_text
from autoscaler.service.routes.permits import Permit
from autoscaler.service.threads import in_stop_thread
from autoscaler.service.versions import spec_version
from autoscaler.store.repositories.jobs import with_changes
from autoscaler.wire.messages import Change, Resumption

SEE_OTHER: Final = 303


@dataclass(frozen=True, slots=True)
class JobForms:
    """Maker of the pages of forms of a job."""

    pages: Pages
    submissions: Submissions
    clock: Clock

    def page(
        self,
        request: Request,
        requester: Requester,
        template: str,
        fields: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> Response:
        """Return the form of a job, with the values that were entered and the error."""
        job = requester.job
        shown = job_fields(job.spec, self.clock.now())
        values = shown | (fields or {}) | {"version": spec_version(job)}
        return self.pages.form(
            request, template, requester, error, job=job, fields=values, objectives=OBJECTIVES
        )


def job_forms_router(forms: JobForms) -> APIRouter:
    """Return the forms of jobs that have not ended, and of those that have."""
    router = APIRouter(include_in_schema=False)
    _add_change(router, forms)
    _add_stop(router, forms)
    _add_again(router, forms)
    return router


def _add_change(router: APIRouter, forms: JobForms) -> None:
    """Add the form for objective, bounds and priority of a job that has not ended."""

    @router.get("/jobs/{name}/change")
    def ask_change(
        request: Request, requester: Requester = Depends(Permit(AccessAction.CHANGE_JOB))
    ) -> Response:
        with_changes(requester.job, None, None, None)  # an ended job has no form, but a way out
        return forms.page(request, requester, "job_change.html")

    @router.post("/jobs/{name}/change")
    def change(
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.CHANGE_JOB)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        before = requester.job
        try:
            wanted = change_of(fields, before.spec, forms.clock.now())
            check = seen_version(fields).of_spec
            check(before)  # a field that is equal to an earlier spec would undo a change
            job = forms.submissions.change(before, wanted, requester.identity.person, check)
        except CastorError as error:
            return forms.page(request, requester, "job_change.html", fields, error)
        requester.record(job.id, *change_text(Change, wanted, before.spec, job.spec))
        return to_job(job, "unchanged" if wanted == Change() else "changed")


def _add_stop(router: APIRouter, forms: JobForms) -> None:
    """Add the forms that stop a job, and that let an ended one go on."""

    @router.get("/jobs/{name}/stop")
    def ask_stop(
        request: Request, requester: Requester = Depends(Permit(AccessAction.STOP_JOB))
    ) -> Response:
        return forms.page(request, requester, "job_stop.html")

    @router.post("/jobs/{name}/stop", dependencies=[Depends(PageForm())])
    async def stop(requester: Requester = Depends(Permit(AccessAction.STOP_JOB))) -> Response:
        def end() -> Response:
            before = requester.job
            job = forms.submissions.stop(before, requester.identity.person)
            requester.record(job.id, before.phase, job.phase)
            return to_job(job, "stopping")

        return await in_stop_thread(end)

    @router.post("/jobs/{name}/resume", dependencies=[Depends(PageForm())])
    def resume(requester: Requester = Depends(Permit(AccessAction.RESUME_JOB))) -> Response:
        before = requester.job
        job = forms.submissions.resume(before, Resumption(), requester.identity)
        requester.record(job.id, f"goes on from {before.id}", job_text(job.spec))
        return to_job(job, "resumed")


def _add_again(router: APIRouter, forms: JobForms) -> None:
    """Add the form that submits an ended job again, from its beginning.

    It needs the right to resume the job, whose environment and files it takes over.
    """

    @router.get("/jobs/{name}/again")
    def ask_again(
        request: Request, requester: Requester = Depends(Permit(AccessAction.RESUME_JOB))
    ) -> Response:
        return forms.page(request, requester, "job_again.html")

    @router.post("/jobs/{name}/again")
    async def again(
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.RESUME_JOB)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        def submit() -> Response:
            try:
                spec = _again(requester.job, fields, forms.clock.now())
                job = forms.submissions.submit(spec, requester.identity)
            except CastorError as error:
                return forms.page(request, requester, "job_again.html", fields, error)
            requester.record(job.id, after=job_text(job.spec), action=AccessAction.SUBMIT)
            return to_job(job, "submitted")

        return await run_in_threadpool(submit)


def _again(job: JobRecord, fields: dict[str, str], now_seconds: float) -> JobSpec:
    """Return the spec of an ended job with the values of a form, to submit it again.

    Raises:
        SpecError: a value can't be used.
        Conflict: the job has not ended.
    """
    if not job.phase.is_final:
        raise Conflict(f"job {job.id} has not ended: stop it first, or change it")
    if job.spec.study is not None:
        raise SpecError("a trial belongs to its study, which submits it", "study")
    return replace(
        as_submitted(job.spec),
        name=fields.get("name", job.spec.name),
        command=command_of(fields["command"]) if "command" in fields else job.spec.command,
        instances=bounds_of(fields, job.spec.instances),
        objective=objective_of(fields, now_seconds, job.spec.objective),
        priority=priority_of(fields, job.spec.priority),
    )


def to_job(job: JobRecord, done: str) -> Response:
    """Return a redirect to the page of a job, which says what was done."""
    return RedirectResponse(f"/jobs/{job.id}?done={done}", SEE_OTHER, HEADERS)
