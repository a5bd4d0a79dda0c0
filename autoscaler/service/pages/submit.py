"""Page that submits a job: a job file, and the folder of its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotAllowed
from autoscaler.domain.job import JobRecord
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.faults import refusal
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.jobs.submissions import Submissions, job_text
from autoscaler.service.pages.fields import FormError, form_error
from autoscaler.service.pages.forms import FORM_TOKEN, require_form_token
from autoscaler.service.pages.job_actions import to_job
from autoscaler.service.pages.multipart import (
    Uploaded,
    UploadParser,
    boundary_of,
    receive_form,
)
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.spec.bundle import pack, require_files, require_script
from autoscaler.spec.job_file import JobFile, load_uploaded_job
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store

EXAMPLE: Final = """name: digits
command: python train.py --epochs 3
instances: {min: 1, max: 4}
objective: {value_of_time: 40}    # or deadline: 4h, budget: $20, cheapest, fastest
"""
_JOB_FILES: Final = ("job.yaml", "job.yml")


@dataclass(frozen=True, slots=True)
class UploadedForm:
    """Form with its files in `files`, an empty directory if there are none."""

    uploaded: Uploaded
    files: Path
    workplace: Path


@dataclass(frozen=True, slots=True)
class Upload:
    """Route dependency that receives a form with files, whose token comes first.

    The files are removed after the request. The application's state has the `Bundles`, and that
    of the request its person, whom a `Permit` before this dependency has set.
    """

    checks_form = True

    async def __call__(self, request: Request) -> AsyncIterator[UploadedForm]:
        """Yield the form.

        Raises:
            NotAllowed: the form is not one of this session's pages.
            SpecError: the form is malformed, or too large.
            OverQuota: the person has too many bytes of bundles.
            Unavailable: the disk is nearly full.
        """
        bundles: Bundles = request.app.state.bundles
        boundary = boundary_of(request.headers.get("content-type", ""))
        seen: list[str] = []

        def check(name: str, value: str) -> None:
            if not seen:
                if name != FORM_TOKEN:
                    raise NotAllowed("the form does not begin with its token: load it again")
                require_form_token(request, value)
            seen.append(name)

        async with bundles.arriving(request.state.person) as count:
            with bundles.workplace() as workplace:
                files = workplace / "files"
                files.mkdir()
                parser = UploadParser(boundary, files, bundles.maximum_bytes, check)
                chunks = bundles.checked(request.stream(), count)
                uploaded = await receive_form(parser, chunks)
                yield UploadedForm(uploaded, files, workplace)


class JobUploads:
    """Receiver of jobs that were uploaded on the page."""

    def __init__(
        self, store: Store, bundles: Bundles, submissions: Submissions, clock: Clock
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._submissions = submissions
        self._clock = clock

    def submit(self, form: UploadedForm, requester: Requester) -> JobRecord:
        """Pack the files of a form, and submit its job.

        Raises:
            SpecError: the job file can't be used; the message names line and key.
            Conflict, NotFound, Unavailable, Forbidden: as `Submissions.submit`.
        """
        job_file = load_uploaded_job(text_of(form), form.files, self._clock.now())
        spec = job_file.spec
        if form.uploaded.files:
            spec = replace(spec, bundle=self._packed(form, job_file, requester))
        job = self._submissions.submit(spec, requester.identity)
        requester.record(job.id, after=job_text(job.spec))
        return job

    def _packed(self, form: UploadedForm, job_file: JobFile, requester: Requester) -> str:
        """Keep the files as a bundle of the requester, and return its SHA-256."""
        archive = form.workplace / "bundle.tar.gz"
        directory = job_file.working_directory
        bundle = pack(directory, archive, maximum_bytes=job_file.maximum_bytes)
        require_files(bundle, directory)
        require_script(job_file.spec.command, directory)
        self._bundles.keep(bundle.sha256, archive, requester.owner.person)
        self._store.owners.share(OwnedKind.BUNDLE, bundle.sha256, requester.owner)
        requester.record(bundle.sha256, action=AccessAction.ADD_BUNDLE)
        return bundle.sha256


def text_of(form: UploadedForm) -> str:
    """Return the text of the job file: that of the form, else that in the folder."""
    text = form.uploaded.fields.get("job", "")
    if text.strip():
        return text
    for name in _JOB_FILES:
        path = form.files / name
        if path.is_file():
            return path.read_text(errors="replace")
    return text


def submit_router(pages: Pages, uploads: JobUploads) -> APIRouter:
    """Return the page, and the route that takes its form."""
    router = APIRouter(prefix="/submit", include_in_schema=False)

    def page(
        request: Request,
        requester: Requester,
        text: str,
        error: FormError | None = None,
        status: int = 200,
    ) -> Response:
        return pages.page(
            request, "submit.html", requester, status, text=text, example=EXAMPLE, error=error
        )

    @router.get("")
    def ask(
        request: Request, requester: Requester = Depends(Permit(AccessAction.SUBMIT))
    ) -> Response:
        return page(request, requester, "")

    @router.post("/upload")
    async def upload(
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.SUBMIT)),
        form: UploadedForm = Depends(Upload()),
    ) -> Response:
        try:
            job = await run_in_threadpool(uploads.submit, form, requester)
        except CastorError as error:
            status = refusal(error).status_code
            return page(request, requester, text_of(form), form_error(error), status)
        return to_job(job, "submitted")

    return router
