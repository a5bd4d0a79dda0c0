"""Routes for people, their tokens, and the audit log."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query, Request

from autoscaler.domain.access import MYSELF, NO_TEAM, AccessToken, Person
from autoscaler.domain.audit import AuditEntry
from autoscaler.domain.rules import LATEST_SECONDS, LONGEST_SECONDS
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.routes.bodies import Body, JsonResponse, NoContent, json_response
from autoscaler.service.routes.pages import (
    CursorText,
    PageQuery,
    cursor_of,
    page_query,
    page_response,
)
from autoscaler.service.routes.permits import Permit
from autoscaler.service.routes.repeats import Repeatable, Repeats, repeatable
from autoscaler.service.versions import Precondition, etag, person_version, precondition
from autoscaler.store.store import Store
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

_LARGEST_NUMBER = 1 << 62


def people_router(authentication: Authentication, repeats: Repeats) -> APIRouter:
    """Return the routes for people and their tokens."""
    router = APIRouter(prefix="/v1/people")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ_PEOPLE))])
    def all_people(
        request: Request, page: PageQuery = Depends(page_query)
    ) -> JsonResponse[tuple[PersonView, ...]]:
        """List all people with their roles."""
        people = sorted(authentication.people.people(), key=lambda person: person.name)
        part, cursor = page.part(people, "people", lambda person: person.name)
        return page_response(tuple[PersonView, ...], part, request, cursor)

    @router.post("")
    def add(
        requester: Requester = Depends(Permit(AccessAction.ADD_PERSON)),
        wanted: NewPerson = Depends(Body(NewPerson)),
        repeat: Repeatable = Depends(repeatable),
    ) -> JsonResponse[Person]:
        """Add a person without a token, who logs in through the identity provider."""

        def create() -> JsonResponse[Person]:
            person = authentication.people.add(wanted)
            requester.record(person.name, after=standing(person))
            return json_response(Person, person)

        return repeats.once(repeat, requester.identity, create)

    @router.post("/{name}")
    def invite(
        name: str,
        requester: Requester = Depends(Permit(AccessAction.INVITE)),
        wanted: InvitationRequest = Depends(Body(InvitationRequest, may_be_empty=True)),
        repeat: Repeatable = Depends(repeatable),
    ) -> JsonResponse[Invitation]:
        """Create a token for a person, who is added if unknown."""

        def create() -> JsonResponse[Invitation]:
            before, invitation = authentication.people.invite(name, wanted, requester.identity)
            earlier = "" if before is None else standing(before)
            requester.record(name, earlier, standing(invitation))
            return json_response(Invitation, invitation)

        return repeats.once(repeat, requester.identity, create, holds_secret=True)

    @router.patch("/{name}")
    def change(
        name: str,
        requester: Requester = Depends(Permit(AccessAction.CHANGE_PERSON)),
        change: PersonChange = Depends(Body(PersonChange)),
        required: Precondition = Depends(precondition),
    ) -> JsonResponse[Person]:
        """Change role or team of a person."""
        before, after = authentication.people.change(name, change, required.of_person)
        requester.record(name, standing(before), standing(after))
        response = json_response(Person, after)
        response.headers["ETag"] = etag(person_version(after))
        return response

    @router.delete("/{name}")
    def remove(
        name: str,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_PERSON)),
        required: Precondition = Depends(precondition),
    ) -> NoContent:
        """Remove a person and revoke all tokens."""
        authentication.people.remove(name, required.of_person)
        requester.record(name)
        return NoContent()

    _add_token_routes(router, authentication, repeats)
    return router


def _add_token_routes(router: APIRouter, authentication: Authentication, repeats: Repeats) -> None:
    """Add the routes for the tokens of a person; `me` names the requester."""

    @router.get("/{name}/tokens")
    def tokens(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ_TOKENS))
    ) -> JsonResponse[tuple[AccessToken, ...]]:
        """List the tokens of a person; `me` is the requester."""
        listed = authentication.people.tokens(_person(name, requester))
        return json_response(tuple[AccessToken, ...], listed)

    @router.post("/{name}/tokens")
    def create(
        name: str,
        requester: Requester = Depends(Permit(AccessAction.CREATE_TOKEN)),
        wanted: TokenRequest = Depends(Body(TokenRequest)),
        repeat: Repeatable = Depends(repeatable),
    ) -> JsonResponse[NewToken]:
        """Create a token of a person; `me` is the requester."""
        person = _person(name, requester)

        def make() -> JsonResponse[NewToken]:
            token = authentication.people.create(person, wanted, requester.identity)
            kind = "service token, " if wanted.is_service else ""
            requester.record(f"{token.person}/{token.name}", after=f"{kind}{token_text(token)}")
            return json_response(NewToken, token)

        return repeats.once(repeat, requester.identity, make, holds_secret=True)

    @router.post("/{name}/tokens/{token}/rotation")
    def rotate(
        name: str,
        token: str,
        requester: Requester = Depends(Permit(AccessAction.ROTATE_TOKEN)),
        grace_seconds: float = Query(default=0.0, ge=0.0, le=LONGEST_SECONDS),
        repeat: Repeatable = Depends(repeatable),
    ) -> JsonResponse[NewToken]:
        """Replace a token by a new one; the earlier one stays valid for `grace_seconds`."""
        person = _person(name, requester)

        def renew() -> JsonResponse[NewToken]:
            identity = requester.identity
            renewed = authentication.people.rotate(person, token, identity, grace_seconds)
            text = f"{token_text(renewed)}; the earlier one for {grace_seconds:.0f} s more"
            requester.record(f"{person}/{token}", after=text)
            return json_response(NewToken, renewed)

        return repeats.once(repeat, requester.identity, renew, holds_secret=True)

    @router.delete("/{name}/tokens/{token}")
    def revoke(
        name: str, token: str, requester: Requester = Depends(Permit(AccessAction.REVOKE_TOKEN))
    ) -> NoContent:
        """Revoke a token."""
        person = _person(name, requester)
        authentication.people.revoke(person, token)
        requester.record(f"{person}/{token}")
        return NoContent()


def browser_links_router(sessions: BrowserSessions) -> APIRouter:
    """Return the route for links that sign a browser in as the requester."""
    router = APIRouter(prefix="/v1")

    @router.post("/browser-links")
    def browser_link(
        requester: Requester = Depends(Permit(AccessAction.OPEN_BROWSER)),
    ) -> JsonResponse[BrowserLink]:
        """Create a link that signs the requester in on the pages, once."""
        return json_response(BrowserLink, sessions.link(requester.identity))

    return router


def audit_router(store: Store) -> APIRouter:
    """Return the route for the audit log."""
    router = APIRouter(prefix="/v1")

    @router.get("/audit", dependencies=[Depends(Permit(AccessAction.READ_AUDIT))])
    def audit(
        request: Request,
        cursor: CursorText = None,
        since_seconds: float = Query(default=0.0, ge=0.0, le=LATEST_SECONDS),
        below: int | None = Query(default=None, ge=0, le=_LARGEST_NUMBER),
        limit: int = Query(default=100, ge=1, le=1000),
    ) -> JsonResponse[tuple[AuditEntry, ...]]:
        """List the changes by people and the launches, the latest first."""
        place = PageQuery(limit, cursor).place("audit", int)
        first = below if place is None else place[0]
        rows = store.audit.page(since_seconds, first, limit + 1)
        after = cursor_of("audit", rows[limit - 1].number) if len(rows) > limit else None
        return page_response(tuple[AuditEntry, ...], rows[:limit], request, after)

    return router


def _person(name: str, requester: Requester) -> str:
    return requester.identity.person if name == MYSELF else name


def standing(person: Person | Invitation) -> str:
    """Return what the audit log says of a person's role and team."""
    return f"{person.role}, team {person.team or NO_TEAM}"


def token_text(token: NewToken) -> str:
    """Return what the audit log says of a new token."""
    return f"role {token.role or 'of the person'}"
