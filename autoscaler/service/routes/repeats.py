"""Requests that may be repeated: an idempotency key makes a create happen once.

The answer is committed together with what the request creates. So a repeat after a lost reply, or
after a death of the controller, gets the same answer or creates what was not created.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar, cast

from fastapi import Header, Request, Response

from autoscaler.clock import Clock
from autoscaler.domain.access import Identity
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.store.repositories.answers import KeptAnswer
from autoscaler.store.store import Store

Answer = TypeVar("Answer", bound=Response)
REPLAYED = "Idempotency-Replayed"

_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Random text. A repeat with the same key and body within a day does nothing "
        "and gets the same answer.",
    ),
]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Idempotency key of a request, None without one, and the hash of the request."""

    key: str | None
    route: str
    request_hash: str


async def repeatable(request: Request, key: _Key = None) -> Repeatable:
    """Return the idempotency key of a request, as a dependency of its route."""
    place = f"{request.method} {request.url.path}?{request.url.query}"
    content = hashlib.sha256(place.encode() + b"\0" + await request.body()).hexdigest()
    return Repeatable(key, f"{request.method} {request.url.path}", content)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Runner of creates; `wake` is called once what a request has created is committed."""

    store: Store
    clock: Clock
    wake: Callable[[], None] = lambda: None

    def once(
        self,
        repeat: Repeatable,
        identity: Identity,
        create: Callable[[], Answer],
        holds_secret: bool = False,
    ) -> Answer:
        """Return the answer of `create`, or that of the earlier request with the same key.

        An answer that `holds_secret` is not stored, and its repeat is refused.

        Raises:
            SpecError: the key was used for another request.
            Conflict: the earlier request is under way, or its answer holds a secret.
        """
        if repeat.key is None:
            return create()
        parts = (identity.person, repeat.route, repeat.key)
        key_hash = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        kept = self.store.answers.get(key_hash, self.clock.now())
        if kept is not None:
            return cast(Answer, _replayed(kept, repeat))  # the text of such an answer
        with self.store.grouped():
            answer = create()
            body = None if holds_secret else bytes(answer.body).decode()
            self.store.answers.keep(
                key_hash,
                KeptAnswer(repeat.request_hash, answer.status_code, body, self.clock.now()),
            )
        self.wake()
        return answer


def _replayed(kept: KeptAnswer, repeat: Repeatable) -> Response:
    if kept.request_hash != repeat.request_hash:
        raise SpecError(
            "was used for another request: take a new key for each create", "Idempotency-Key"
        )
    if kept.body is None:
        raise Conflict(
            "an earlier request with this Idempotency-Key has created the token, whose text is "
            "not stored: revoke or rotate the token if the text is lost"
        )
    headers = {REPLAYED: "true"}
    return Response(kept.body, kept.status, headers, media_type="application/json")
