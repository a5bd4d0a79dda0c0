"""Forms that change a study: another budget, and stop, which is confirmed on its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.text import quoted
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.pages.fields import amount_of
from autoscaler.service.pages.forms import PageForm, seen_version
from autoscaler.service.pages.job_actions import SEE_OTHER
from autoscaler.service.pages.rendering import HEADERS, Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.service.routes.studies import budget_text, stop_text
from autoscaler.service.studies.studies import Studies
from autoscaler.service.threads import in_stop_thread

_ENDS: Final = {"go on": False, "stop": True}
"""Whether the running trials end at once, by the choice of the form."""


@dataclass(frozen=True, slots=True)
class StudyForms:
    """Maker of the pages of forms of a study."""

    pages: Pages
    studies: Studies

    def page(
        self,
        request: Request,
        requester: Requester,
        template: str,
        fields: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> Response:
        """Return the form of a study, with the values that were entered and the error.

        Raises:
            NotFound: there is no such study.
        """
        summary = self.studies.summary(str(request.path_params["study"]))
        budget_usd = summary.budget_usd
        present = {"budget": "" if budget_usd is None else f"{budget_usd:f}"}
        version = self.studies.view(summary.name).version
        values = present | (fields or {}) | {"version": version}
        return self.pages.form(request, template, requester, error, study=summary, fields=values)


def study_forms_router(forms: StudyForms) -> APIRouter:
    """Return the forms of studies, for their owner, the team and operators."""
    router = APIRouter(prefix="/studies/{study}", include_in_schema=False)
    _add_budget(router, forms)
    _add_stop(router, forms)
    return router


def _add_budget(router: APIRouter, forms: StudyForms) -> None:
    @router.get("/budget")
    def ask_budget(
        request: Request, requester: Requester = Depends(Permit(AccessAction.CHANGE_STUDY))
    ) -> Response:
        return forms.page(request, requester, "study_budget.html")

    @router.post("/budget")
    def set_budget(
        study: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.CHANGE_STUDY)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        try:
            budget_usd = amount_of(fields, "budget")
            before = forms.studies.set_budget(study, budget_usd, seen_version(fields).of_study)
        except CastorError as error:
            return forms.page(request, requester, "study_budget.html", fields, error)
        requester.record(study, budget_text(before), f"${budget_usd}")
        return _to_study(study, "budget-set")


def _add_stop(router: APIRouter, forms: StudyForms) -> None:
    @router.get("/stop")
    def ask_stop(
        request: Request, requester: Requester = Depends(Permit(AccessAction.STOP_STUDY))
    ) -> Response:
        return forms.page(request, requester, "study_stop.html")

    @router.post("/stop")
    async def stop(
        study: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.STOP_STUDY)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        def end() -> Response:
            try:
                at_once = _is_at_once(fields)
                forms.studies.stop(study, at_once, requester.identity.person)
            except CastorError as error:
                return forms.page(request, requester, "study_stop.html", fields, error)
            requester.record(study, after=stop_text(at_once))
            return _to_study(study, "study-stopping")

        return await in_stop_thread(end)


def _is_at_once(fields: dict[str, str]) -> bool:
    """Return whether a form ends the running trials, too.

    Raises:
        SpecError: there is no such choice.
    """
    choice = fields.get("trials", "go on")
    if choice not in _ENDS:
        raise SpecError(f"{quoted(choice)} is no choice: take one of the list", "trials")
    return _ENDS[choice]


def _to_study(study: str, done: str) -> Response:
    return RedirectResponse(f"/studies/{study}?done={done}", SEE_OTHER, HEADERS)
