"""Lists: filtered, in order, a page at a time, of one scope or of all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.fakes.gcp.call import Call
from tests.fakes.gcp.errors import invalid, unreachable
from tests.fakes.gcp.filters import parsed
from tests.fakes.gcp.project import Body

_MOST: Final = 500
Place = tuple[str, str]


def listed(call: Call, items: Iterable[Body]) -> Body:
    """One scope's; its caller adds what kind of list it is."""
    found, token = _page(call, [("", item) for item in items])
    shown: Body = {"id": _id(call), "selfLink": f"{call.base}/{_id(call)}"}
    if found:
        shown["items"] = [item for _, item in found]
    return shown | ({"nextPageToken": token} if token else {})


def aggregated(call: Call, key: str, scopes: Mapping[str, Iterable[Body]]) -> Body:
    """All scopes', ``zones/Z`` each; those that do not answer are named if that is enough."""
    silent = {f"zones/{zone}" for zone in call.project.unreachable} & scopes.keys()
    if silent and not call.parameters.get("returnPartialSuccess"):
        raise unreachable(", ".join(sorted(silent)))
    everything = [
        (scope, item) for scope, items in scopes.items() if scope not in silent for item in items
    ]
    found, token = _page(call, everything)
    shown: dict[str, Any] = {}
    for scope in sorted(scopes):
        of_scope = [item for place, item in found if place == scope]
        if of_scope:
            shown[scope] = {key: of_scope}
        elif scope in silent:
            shown[scope] = {"warning": _warning("UNREACHABLE", scope, "The scope is unreachable")}
        else:
            reason = f"There are no results for scope '{scope}' on this page."
            shown[scope] = {"warning": _warning("NO_RESULTS_ON_PAGE", scope, reason)}
    told: Body = {"id": _id(call), "selfLink": f"{call.base}/{_id(call)}", "items": shown}
    if silent:
        told["unreachables"] = [f"{call.root}/{scope}" for scope in sorted(silent)]
    return told | ({"nextPageToken": token} if token else {})


def _warning(code: str, scope: str, message: str) -> Body:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}


def _page(call: Call, items: list[tuple[str, Body]]) -> tuple[list[tuple[str, Body]], str]:
    """Those of the page that is asked for, and the token of the next one, if there is one."""
    parameters = call.parameters

    def has_field(path: str) -> bool:
        return call.api.lists_field(call.method, path)

    lets_through = parsed(parameters.get("filter", ""), has_field)
    order = parameters.get("orderBy", "name")
    if order not in ("name", "creationTimestamp desc"):
        raise invalid("orderBy", order, "Only name and creationTimestamp desc are supported.")
    is_falling = order != "name"

    def place(entry: tuple[str, Body]) -> Place:
        scope, item = entry
        made = item.get("creationTimestamp") or item.get("insertTime", "")
        return (made if is_falling else scope), item["name"]

    found = sorted((one for one in items if lets_through(one[1])), key=place, reverse=is_falling)
    after = _after(parameters.get("pageToken", ""))
    if after is not None:
        found = [
            one for one in found if (place(one) < after if is_falling else place(one) > after)
        ]
    wanted = parameters.get("maxResults") or _MOST
    if wanted > _MOST:
        raise invalid("maxResults", wanted, f"Values must be within the range of [0, {_MOST}].")
    most = min(wanted, call.project.page or _MOST)
    page = found[:most]
    return page, _token(place(page[-1])) if len(found) > most else ""


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
    """Of a list: its path below the API's."""
    scope = next(
        (
            f"{name}s/{call.parameters[name]}"
            for name in ("zone", "region")
            if name in call.parameters
        ),
        "aggregated" if call.method.id.endswith("aggregatedList") else "global",
    )
    return f"projects/{call.project.id}/{scope}/{call.method.id.split('.')[1]}"
