"""Permits of routes: each route for people names its action, which is checked before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from autoscaler.domain.access import MYSELF, Identity
from autoscaler.domain.errors import NotAllowed
from autoscaler.service.access.authentication import NO_TOKEN
from autoscaler.service.access.gate import AccessGate, Requester
from autoscaler.service.access.permissions import (
    RULES,
    AccessAction,
    Subject,
    require_permitted,
)
from autoscaler.service.access.request_gate import OPEN_PAGES, OPEN_PATHS, presented_token
from autoscaler.service.threads import in_thread_of

_NODE_PATHS: Final = "/v1/node/"
# Parameter of a route's path that names the subject of the action.
_PARAMETERS: Final = {
    Subject.JOB: "name",
    Subject.STUDY: "study",
    Subject.PROGRAM: "name",
    Subject.BUNDLE: "sha256",
    Subject.PERSON: "name",
}


@dataclass(frozen=True, slots=True)
class Permit:
    """Route dependency that authenticates a person and permits one action.

    The application's state has the `AccessGate`.
    """

    action: AccessAction

    async def __call__(self, request: Request) -> Requester:
        """Return the person behind the request.

        Checks that can't block use no thread, since a thread costs latency on a busy machine.

        Raises:
            NotAllowed: the token is missing or unknown.
            Forbidden: the person's role does not permit the action.
            UnknownJob: the action is on a job that does not exist.
        """
        gate: AccessGate = request.app.state.access
        path, presented = str(request.scope["path"]), presented_token(request.scope)
        if presented is None:
            raise NotAllowed(NO_TOKEN)
        people = gate.authentication.people
        identity = people.known(presented)
        if identity is None:
            identity = await in_thread_of(path, people.identity, presented)
        request.state.person = identity.person
        name = self._subject(request, identity)
        require_permitted(identity, self.action, name)  # as far as the role alone decides
        if RULES[self.action].subject is Subject.JOB:
            job = await in_thread_of(path, gate.job, identity, self.action, name)
            return Requester(identity, self.action, gate.record, job)
        if gate.needs_store(identity, self.action):
            await in_thread_of(path, gate.require, identity, self.action, name)
        else:
            gate.require(identity, self.action, name)
        return Requester(identity, self.action, gate.record)

    def _subject(self, request: Request, identity: Identity) -> str:
        subject = RULES[self.action].subject
        name = "" if subject is None else str(request.path_params[_PARAMETERS[subject]])
        return identity.person if subject is Subject.PERSON and name == MYSELF else name


def require_permits(app: FastAPI) -> None:
    """Check that each route names one action, except those of instances and of signing in.

    Raises:
        RuntimeError: a route names none or several, so that nobody decides who may use it.
    """
    for route in routes_of(app.routes):
        is_open = route.path in OPEN_PATHS or OPEN_PAGES.fullmatch(route.path) is not None
        if is_open or route.path.startswith(_NODE_PATHS):
            continue
        actions = tuple(actions_of(route.dependant))
        if len(actions) != 1:
            raise RuntimeError(f"{route.path}: name one action, not {len(actions)}")


@dataclass(frozen=True, slots=True)
class KnownRoute:
    """Route of an application with its whole path, and whether the schema of the API has it."""

    path: str
    methods: frozenset[str]
    dependant: Dependant
    include_in_schema: bool


def routes_of(routes: Iterable[BaseRoute]) -> Iterator[KnownRoute]:
    """Yield all routes of an application, those of its routers included.

    Newer releases of FastAPI keep the routes of an included router in that router.
    """
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            contexts = tuple(route.effective_route_contexts())
        else:
            contexts = (route,) if isinstance(route, APIRoute) else ()
        for known in contexts:
            yield KnownRoute(
                known.path,
                frozenset(known.methods or ()),
                known.dependant,
                known.include_in_schema,
            )


def actions_of(dependant: Dependant) -> Iterator[AccessAction]:
    """Yield the actions that a route or a dependency needs."""
    if isinstance(dependant.call, Permit):
        yield dependant.call.action
    for dependency in dependant.dependencies:
        yield from actions_of(dependency)
