"""Forms of shared budgets: a new one, other limits, and removal, which asks first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from autoscaler.domain.budget import Budget, ScopeKind, parse_scope
from autoscaler.domain.errors import CastorError, Conflict, NotFound, SpecError
from autoscaler.domain.text import quoted
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.pages.fields import amount_of
from autoscaler.service.pages.forms import PageForm, seen_version
from autoscaler.service.pages.job_actions import SEE_OTHER
from autoscaler.service.pages.rendering import HEADERS, Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.budgets import BudgetCheck
from autoscaler.wire.budget_messages import BudgetRequest, BudgetView

_KINDS: Final = (
    (ScopeKind.PERSON, "the jobs of a person"),
    (ScopeKind.TEAM, "the jobs of a team"),
    (ScopeKind.STUDY, "the trials of a study"),
    (ScopeKind.FLEET, "all jobs"),
)
_LIMITS: Final = ("month_usd", "total_usd", "hourly_usd")


@dataclass(frozen=True, slots=True)
class BudgetForms:
    """Maker of the pages of forms of shared budgets."""

    pages: Pages
    budgets: SharedBudgets

    def new(
        self,
        request: Request,
        requester: Requester,
        fields: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> Response:
        """Return the form of a new budget, with the values that were entered and the error."""
        values = {"kind": ScopeKind.TEAM.value, "zone": "UTC"} | (fields or {})
        return self.pages.form(
            request, "budget.html", requester, error, budget=None, fields=values, kinds=_KINDS
        )

    def present(
        self,
        request: Request,
        requester: Requester,
        template: str,
        fields: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> Response:
        """Return a form of a budget that is set, with the values that were entered and the error.

        The form has the present version: it shows the present limits, too.

        Raises:
            NotFound: the scope has no budget.
            SpecError: the scope is none.
        """
        view = self.budgets.view(str(request.path_params["scope"]))
        return self.pages.form(
            request,
            template,
            requester,
            error,
            budget=view,
            text=_budget(view).text,
            fields=_fields(view) | (fields or {}) | {"version": view.version},
        )

    def refused(
        self,
        request: Request,
        requester: Requester,
        fields: dict[str, str],
        error: Exception,
    ) -> Response:
        """Return the form of a refused change; of a new budget if it was removed meanwhile.

        Raises:
            SpecError: the scope is none.
        """
        try:
            return self.present(request, requester, "budget.html", fields, error)
        except NotFound as gone:
            scope = parse_scope(str(request.path_params["scope"]))
            fields = {**fields, "kind": scope.kind.value, "name": scope.name}
            return self.new(request, requester, fields, gone)


def budget_forms_router(forms: BudgetForms) -> APIRouter:
    """Return the forms of shared budgets, for admins."""
    router = APIRouter(prefix="/costs/budgets", include_in_schema=False)
    _add_new(router, forms)
    _add_change(router, forms)
    _add_removal(router, forms)
    return router


def _add_new(router: APIRouter, forms: BudgetForms) -> None:
    @router.get("")
    def ask_new(
        request: Request, requester: Requester = Depends(Permit(AccessAction.SET_BUDGET))
    ) -> Response:
        return forms.new(request, requester)

    @router.post("")
    def add(
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.SET_BUDGET)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        try:
            _put(forms, requester, _scope(fields), fields, _require_none)
        except CastorError as error:
            return forms.new(request, requester, fields, error)
        return _to_costs("shared-budget-set")


def _add_change(router: APIRouter, forms: BudgetForms) -> None:
    @router.get("/{scope}")
    def ask_change(
        request: Request, requester: Requester = Depends(Permit(AccessAction.SET_BUDGET))
    ) -> Response:
        return forms.present(request, requester, "budget.html")

    @router.post("/{scope}")
    def change(
        scope: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.SET_BUDGET)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        try:
            _put(forms, requester, scope, fields, seen_version(fields).of_budget)
        except CastorError as error:
            return forms.refused(request, requester, fields, error)
        return _to_costs("shared-budget-set")


def _add_removal(router: APIRouter, forms: BudgetForms) -> None:
    @router.get("/{scope}/removal")
    def ask_removal(
        request: Request, requester: Requester = Depends(Permit(AccessAction.REMOVE_BUDGET))
    ) -> Response:
        return forms.present(request, requester, "budget_removal.html")

    @router.post("/{scope}/removal")
    def remove(
        scope: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_BUDGET)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        try:
            before = forms.budgets.remove(scope, seen_version(fields).of_budget)
        except Conflict as error:
            return forms.present(request, requester, "budget_removal.html", fields, error)
        requester.record(str(before.scope), before.text)
        return _to_costs("shared-budget-removed")


def _put(
    forms: BudgetForms,
    requester: Requester,
    scope: str,
    fields: dict[str, str],
    precondition: BudgetCheck,
) -> None:
    """Set the budget of a form, and record it in the audit log.

    Raises:
        SpecError: a value can't be used.
        Conflict: `precondition` refuses the budget before.
    """
    try:
        before, after, view = forms.budgets.put(scope, _wanted(fields), precondition)
    except NotFound as error:
        raise SpecError(str(error), "name") from None
    requester.record(view.scope, "" if before is None else before.text, after.text)


def _require_none(budget: Budget | None) -> None:
    """Check that a scope has no budget yet. `Conflict`: it has one."""
    if budget is not None:
        raise Conflict(f"{budget.scope} has a budget already ({budget.text}): change that one")


def _wanted(fields: dict[str, str]) -> BudgetRequest:
    """Return the limits of a form.

    Raises:
        SpecError: a limit is no amount, or there is none.
    """
    month_usd, total_usd, hourly_usd = (
        amount_of(fields, name) if fields.get(name) else None for name in _LIMITS
    )
    if month_usd is None and total_usd is None and hourly_usd is None:
        raise SpecError("write at least one of the three limits", _LIMITS[0])
    return BudgetRequest(month_usd, total_usd, hourly_usd, fields.get("zone") or "UTC")


def _scope(fields: dict[str, str]) -> str:
    """Return the scope of a form.

    Raises:
        SpecError: there is no such kind of scope, or the name can't be one of it.
    """
    kind, name = fields.get("kind", ""), fields.get("name", "")
    if kind not in list(ScopeKind):
        raise SpecError(f"{quoted(kind)} is no choice: take one of the list", "kind")
    if kind == ScopeKind.FLEET:
        if name:
            raise SpecError("leave the name empty: the budget is one of all jobs", "name")
        return kind
    if not name:
        raise SpecError(f"write the name of the {kind}", "name")
    try:
        return str(parse_scope(f"{kind}:{name}"))
    except SpecError:
        problem = f"{quoted(name)} can't be the name of a {kind}: write a-z, 0-9 and .@_-"
        raise SpecError(problem, "name") from None


def _fields(view: BudgetView) -> dict[str, str]:
    """Return the fields of a form that show a budget."""
    limits = (view.month_usd, view.total_usd, view.hourly_usd)
    shown = ("" if limit is None else f"{limit:f}" for limit in limits)
    return {**dict(zip(_LIMITS, shown, strict=True)), "zone": view.zone}


def _budget(view: BudgetView) -> Budget:
    return Budget(
        parse_scope(view.scope), view.month_usd, view.total_usd, view.hourly_usd, view.zone
    )


def _to_costs(done: str) -> Response:
    return RedirectResponse(f"/costs?done={done}", SEE_OTHER, HEADERS)
