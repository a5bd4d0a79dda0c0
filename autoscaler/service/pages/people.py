"""Pages of people, tokens and the audit log."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from autoscaler.clock import Clock
from autoscaler.domain.access import MYSELF, OWNER, Role
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.domain.text import quoted
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.people import OWNER_TOKEN, PeopleAccess
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.faults import refusal
from autoscaler.service.pages.fields import FormError, form_error
from autoscaler.service.pages.forms import PageForm
from autoscaler.service.pages.rendering import HEADERS, Pages
from autoscaler.service.routes.people import standing, token_text
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.people import unknown_person
from autoscaler.store.store import Store
from autoscaler.wire.access_messages import (
    Invitation,
    InvitationRequest,
    NewToken,
    PersonChange,
    TokenRequest,
)

_SEE_OTHER: Final = 303
_ROWS: Final = 100
_LARGEST_NUMBER: Final = 1 << 62
_DAY_SECONDS: Final = 86_400.0
_MOST_DAYS: Final = 3_650


class PeoplePages:
    """Maker of the pages of people and tokens."""

    def __init__(self, pages: Pages, authentication: Authentication, clock: Clock) -> None:
        self._authentication = authentication
        self._pages = pages
        self._clock = clock

    @property
    def people(self) -> PeopleAccess:
        """Issuer of tokens."""
        return self._authentication.people

    def people_page(
        self,
        request: Request,
        requester: Requester,
        error: FormError | None = None,
        status: int = 200,
        invitation: Invitation | None = None,
    ) -> Response:
        """Return the page of all people."""
        return self._pages.page(
            request,
            "people.html",
            requester,
            status,
            people=self.people.people(),
            owner=OWNER,
            roles=[role.value for role in Role],
            error=error,
            invitation=invitation,
        )

    def tokens_page(
        self,
        request: Request,
        requester: Requester,
        name: str,
        error: FormError | None = None,
        status: int = 200,
        new: NewToken | None = None,
    ) -> Response:
        """Return the page of the tokens of a person."""
        tokens = self.people.tokens(name)
        now_seconds = self._clock.now()
        usable = [token for token in tokens if token.is_usable(now_seconds)]
        return self._pages.page(
            request,
            "tokens.html",
            requester,
            status,
            name=name,
            kept=OWNER_TOKEN if name == OWNER else "",
            usable=sorted(usable, key=lambda token: -token.created_seconds),
            ended=len(tokens) - len(usable),
            roles=[role.value for role in Role],
            error=error,
            new=new,
        )

    def removal_page(self, request: Request, requester: Requester, name: str) -> Response:
        """Return the question whether to remove a person.

        Raises:
            NotFound: there is no such person.
            Conflict: the person is the owner.
        """
        self.people.require_removable(name)
        someone = next((view for view in self.people.people() if view.name == name), None)
        if someone is None:
            raise unknown_person(name)
        return self._pages.page(request, "person_removal.html", requester, someone=someone)

    def revocation_page(
        self, request: Request, requester: Requester, name: str, token: str
    ) -> Response:
        """Return the question whether to revoke a token of a person.

        Raises:
            NotFound: there is no such token, or it is revoked already.
            Conflict: the token is that of the controller's state directory.
        """
        self.people.require_revocable(name, token)
        return self._pages.page(
            request, "token_revocation.html", requester, name=name, token=token
        )


def people_pages_router(content: PeoplePages) -> APIRouter:
    """Return the pages of people, for admins, and of tokens, for each person."""
    router = APIRouter(prefix="/people", include_in_schema=False)
    _add_people(router, content)
    _add_tokens(router, content)
    return router


def _add_people(router: APIRouter, content: PeoplePages) -> None:
    @router.get("")
    def people(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ_PEOPLE))
    ) -> Response:
        return content.people_page(request, requester)

    @router.post("/{name}/invitation")
    def invite(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.INVITE)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        try:
            invited = fields.get("name") or name
            wanted = InvitationRequest(_role(fields), fields.get("team") or None)
            before, invitation = content.people.invite(invited, wanted, requester.identity)
        except CastorError as error:
            status = refusal(error).status_code
            return content.people_page(request, requester, form_error(error), status)
        earlier = "" if before is None else standing(before)
        requester.record(invitation.person, earlier, standing(invitation))
        return content.people_page(request, requester, invitation=invitation)

    @router.post("/{name}/standing")
    def change(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.CHANGE_PERSON)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        team = fields.get("team", "")
        try:
            wanted = PersonChange(_role(fields), team or None, leaves_team=not team)
            before, after = content.people.change(name, wanted)
        except CastorError as error:
            status = refusal(error).status_code
            return content.people_page(request, requester, form_error(error), status)
        requester.record(name, standing(before), standing(after))
        return _to("/people", "set")

    @router.get("/{name}/removal")
    def ask_removal(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_PERSON)),
    ) -> Response:
        return content.removal_page(request, requester, name)

    @router.post("/{name}/removal", dependencies=[Depends(PageForm())])
    def remove(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_PERSON)),
    ) -> Response:
        content.people.remove(name)
        requester.record(name)
        return _to("/people", "removed")


def _add_tokens(router: APIRouter, content: PeoplePages) -> None:
    @router.get("/{name}")
    def tokens(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.READ_TOKENS)),
    ) -> Response:
        return content.tokens_page(request, requester, _person(name, requester))

    @router.post("/{name}/tokens")
    def create(
        name: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.CREATE_TOKEN)),
        fields: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        person = _person(name, requester)
        try:
            wanted = TokenRequest(fields.get("name", ""), _role(fields), "service" in fields)
            token = content.people.create(person, wanted, requester.identity)
        except CastorError as error:
            status = refusal(error).status_code
            return content.tokens_page(request, requester, person, form_error(error), status)
        kind = "service token, " if wanted.is_service else ""
        requester.record(f"{token.person}/{token.name}", after=f"{kind}{token_text(token)}")
        return content.tokens_page(request, requester, person, new=token)

    @router.get("/{name}/tokens/{token}/revocation")
    def ask_revocation(
        name: str,
        token: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.REVOKE_TOKEN)),
    ) -> Response:
        return content.revocation_page(request, requester, _person(name, requester), token)

    @router.post("/{name}/tokens/{token}/revocation", dependencies=[Depends(PageForm())])
    def revoke(
        name: str, token: str, requester: Requester = Depends(Permit(AccessAction.REVOKE_TOKEN))
    ) -> Response:
        person = _person(name, requester)
        content.people.revoke(person, token)
        requester.record(f"{person}/{token}")
        return _to(f"/people/{name}", "revoked")


def audit_page_router(pages: Pages, store: Store, clock: Clock) -> APIRouter:
    """Return the page of the audit log, the latest rows first."""
    router = APIRouter(include_in_schema=False)

    @router.get("/audit")
    def audit(
        request: Request,
        days: float = Query(default=7.0, ge=0.01, le=_MOST_DAYS),
        below: int | None = Query(default=None, ge=0, le=_LARGEST_NUMBER),
        q: str = "",
        requester: Requester = Depends(Permit(AccessAction.READ_AUDIT)),
    ) -> Response:
        since_seconds = min(max(clock.now() - days * _DAY_SECONDS, 0.0), LATEST_SECONDS)
        rows = store.audit.page(since_seconds, below, _ROWS)
        wanted = q.lower()
        shown = [
            row
            for row in rows
            if wanted in f"{row.person} {row.action} {row.subject} {row.after}".lower()
        ]
        return pages.page(
            request,
            "audit.html",
            requester,
            rows=shown,
            days=days,
            q=q,
            is_later=below is not None,
            following=rows[-1].number if len(rows) == _ROWS else None,
        )

    return router


def _to(address: str, done: str) -> Response:
    return RedirectResponse(f"{address}?done={done}", _SEE_OTHER, HEADERS)


def _person(name: str, requester: Requester) -> str:
    return requester.identity.person if name == MYSELF else name


def _role(fields: dict[str, str]) -> Role | None:
    """Return the role of a form; None for none.

    Raises:
        SpecError: there is no such role.
    """
    text = fields.get("role", "")
    if text and text not in list(Role):
        raise SpecError(f"{quoted(text)} is no role: choose one of the list", "role")
    return Role(text) if text else None
