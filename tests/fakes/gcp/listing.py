"""Lists: filtered, ordered and paged, of one scope or of all scopes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.fakes.gcp.call import Call
from tests.fakes.gcp.errors import invalid, unreachable
from tests.fakes.gcp.filters import parse_filter
from tests.fakes.gcp.project import Body

_MAXIMUM: Final = 500
Place = tuple[str, str]


def list_page(call: Call, items: Iterable[Body]) -> Body:
    """Return the list of one scope, without its kind."""
    page, token = _page(call, [("", item) for item in items])
    shown: Body = {"id": _id(call), "selfLink": f"{call.base}/{_id(call)}"}
    if page:
        shown["items"] = [item for _, item in page]
    return shown | ({"nextPageToken": token} if token else {})


def list_all_scopes(call: Call, key: str, scopes: Mapping[str, Iterable[Body]]) -> Body:
    """Return the lists of all scopes, ``zones/Z`` each.

    Scopes that do not answer are named if the call permits a partial answer.
    """
    silent = {f"zones/{zone}" for zone in call.project.unreachable} & scopes.keys()
    if silent and not call.parameters.get("returnPartialSuccess"):
        raise unreachable(", ".join(sorted(silent)))
    everything = [
        (scope, item) for scope, items in scopes.items() if scope not in silent for item in items
    ]
    page, token = _page(call, everything)
    shown: dict[str, Any] = {}
    for scope in sorted(scopes):
        of_scope = [item for item_scope, item in page if item_scope == scope]
        if of_scope:
            shown[scope] = {key: of_scope}
        elif scope in silent:
            shown[scope] = {"warning": _warning("UNREACHABLE", scope, "The scope is unreachable")}
        else:
            reason = f"There are no results for scope '{scope}' on this page."
            shown[scope] = {"warning": _warning("NO_RESULTS_ON_PAGE", scope, reason)}
    answer: Body = {"id": _id(call), "selfLink": f"{call.base}/{_id(call)}", "items": shown}
    if silent:
        answer["unreachables"] = [f"{call.root}/{scope}" for scope in sorted(silent)]
    return answer | ({"nextPageToken": token} if token else {})


def _warning(code: str, scope: str, message: str) -> Body:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}


def _page(call: Call, items: list[tuple[str, Body]]) -> tuple[list[tuple[str, Body]], str]:
    """Return the requested page, and the token of the next page or ""."""
    parameters = call.parameters

    def has_field(path: str) -> bool:
        return call.api.lists_field(call.method, path)

    lets_through = parse_filter(parameters.get("filter", ""), has_field)
    order = parameters.get("orderBy", "name")
    if order not in ("name", "creationTimestamp desc"):
        raise invalid("orderBy", order, "Only name and creationTimestamp desc are supported.")
    is_falling = order != "name"

    def place(entry: tuple[str, Body]) -> Place:
        scope, item = entry
        created = item.get("creationTimestamp") or item.get("insertTime", "")
        return (created if is_falling else scope), item["name"]

    entries = sorted(
        (entry for entry in items if lets_through(entry[1])), key=place, reverse=is_falling
    )
    after = _after(parameters.get("pageToken", ""))
    if after is not None:
        entries = [
            entry
            for entry in entries
            if (place(entry) < after if is_falling else place(entry) > after)
        ]
    requested = parameters.get("maxResults") or _MAXIMUM
    if requested > _MAXIMUM:
        raise invalid(
            "maxResults", requested, f"Values must be within the range of [0, {_MAXIMUM}]."
        )
    size = min(requested, call.project.page or _MAXIMUM)
    page = entries[:size]
    return page, _token(place(page[-1])) if len(entries) > size else ""


def _token(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _after(token: str) -> Place | None:
    if not token:
        return None
    try:
        first, second = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise invalid("pageToken", token, "The token is not one of this list.") from error
    return first, second


def _id(call: Call) -> str:
    """Return the id of a list: its path below the API's."""
    scope = next(
        (
            f"{name}s/{call.parameters[name]}"
            for name in ("zone", "region")
            if name in call.parameters
        ),
        "aggregated" if call.method.id.endswith("aggregatedList") else "global",
    )
    return f"projects/{call.project.id}/{scope}/{call.method.id.split('.')[1]}"
