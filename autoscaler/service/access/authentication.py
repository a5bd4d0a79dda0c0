"""Who asks: people by bearer tokens, nodes by signed ones.

A node joins with a token that its user data carries: signed, bound to one instance, short-lived,
good for one use. It gets one for the instance's life, with which an instance that has ended can
only hear that it is to leave. Of people's tokens only hashes are kept; the signing key is a file
that only the controller's user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

import jwt

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotAllowed, SpecError, StoreError, Unavailable
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.store.store import Store

OWNER = "owner"
JOIN_SECONDS = 900.0

NO_TOKEN = "a token is needed: set CASTOR_TOKEN"

_ALGORITHM = "HS256"
_NODE_PATHS = "/v1/node/"
_JOIN, _NODE = "join", "node"
_KEY_BYTES = 32
_PERSON = re.compile(r"[a-z0-9][a-z0-9.@_-]{0,79}")


def load_key(path: Path) -> bytes:
    """The signing key at `path`; made, readable by its owner only, if there is none.

    Raises:
        StoreError: it can't be read or is not a key.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}: choose another --state directory") from error
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise StoreError(f"{path} is not a signing key: move it away to have a new one made")
    return key


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Authentication:
    """Issues tokens and checks them."""

    def __init__(self, store: Store, key: bytes, clock: Clock) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._known: dict[str, str] = {}

    def set_person(self, name: str, token: str) -> None:
        """Let the bearer of `token` in as `name`, and nobody else."""
        self._store.tokens.set_person(name, digest(token))
        self._known = {}

    def invite(self, name: str, by: str) -> str:
        """A token for a person, in place of any that they had.

        Raises:
            NotAllowed: it is not the owner who asks.
            SpecError: the name is none, or the owner's.
        """
        if by != OWNER:
            raise NotAllowed(f"only {OWNER} lets people in, not {by}")
        if name == OWNER or not _PERSON.fullmatch(name):
            raise SpecError(
                f"{name!r} can't be invited: take another name, of a-z, 0-9 and .@_-", "name"
            )
        token = secrets.token_urlsafe(32)
        self.set_person(name, token)
        return token

    def person(self, token: str) -> str:
        """The name of the person whose token this is.

        Raises:
            NotAllowed: nobody's.
        """
        key = digest(token)
        known = self._known  # replaced, not changed, as soon as somebody's token is another
        name = known.get(key) or self._store.tokens.person(key)
        if name is None:
            raise NotAllowed(
                "this token is not known here: take the one in the controller's state directory, "
                "or set CASTOR_TOKEN"
            )
        known[key] = name
        return name

    def require_known(self, path: str, token: str | None) -> None:
        """Check that a token goes with a path of the API, before a request to it is read.

        Raises:
            NotAllowed: there is no token, or none of the kind that the path needs.
        """
        if token is None:
            raise NotAllowed(NO_TOKEN)
        if path.startswith(_NODE_PATHS):
            self._subject(token, _NODE)
        else:
            self.person(token)

    def recognises(self, path: str, token: str | None) -> bool:
        """Return whether a token goes with a path, as far as memory and signatures tell.

        The store is not asked, so that this may be called where nothing may block.
        """
        if token is None or not path.startswith(_NODE_PATHS):
            return token is not None and self.known_person(token) is not None
        try:
            self._subject(token, _NODE)
        except NotAllowed:
            return False
        return True

    def known_person(self, token: str) -> str | None:
        """Return the person whose token was seen before; None if the store is to be asked."""
        return self._known.get(digest(token))

    def join_token(self, held: HeldInstance) -> str:
        """The token with which this instance may join, once.

        The same for every call: a launch that is made again carries the same user data. So the
        store alone knows when it expires.
        """
        return self._sign({"kind": _JOIN, "sub": held.id})

    def issue(self, held: HeldInstance) -> None:
        """Make this instance's join token good for its one use, for `JOIN_SECONDS` from now."""
        token = self.join_token(held)
        self._store.tokens.issue(digest(token), held.id, self._clock.now() + JOIN_SECONDS)

    def named(self, token: str, instance: str) -> HeldInstance:
        """The instance that this join token was made for, whether it is still good or not.

        Raises:
            NotAllowed: it is another's.
        """
        if self._subject(token, _JOIN) != instance:
            raise NotAllowed(f"the join token is not for {instance}")
        return self._store.instances.get(instance)

    def candidate(self, token: str, instance: str) -> HeldInstance:
        """The instance that may join with this token.

        Raises:
            NotAllowed: the token is another's, expired or used, or the instance has ended.
            Unavailable: as far as is known its cloud has no capacity for it yet.
        """
        held = self.named(token, instance)
        if held.phase is InstancePhase.QUEUED:
            raise Unavailable(f"{instance} is in its cloud's queue, as far as its list says")
        if held.phase is InstancePhase.ENDED:
            raise NotAllowed(f"{instance} has been given up")
        if not self._store.tokens.is_good(digest(token), self._clock.now()):
            raise NotAllowed(f"the join token of {instance} has expired or was used before")
        return held

    def join(self, token: str, instance: str) -> str:
        """Use a join token up; returns the instance's lasting token.

        Raises:
            NotAllowed: as `candidate`.
        """
        self.candidate(token, instance)
        if not self._store.tokens.burn(digest(token), self._clock.now()):
            raise NotAllowed(f"the join token of {instance} has expired or was used before")
        return self._sign({"kind": _NODE, "sub": instance})

    def node(self, token: str) -> HeldInstance:
        """The instance whose lasting token this is; it may be on its way out, or have ended.

        Raises:
            NotAllowed: no such token.
        """
        return self._store.instances.get(self._subject(token, _NODE))

    def working_node(self, token: str) -> HeldInstance:
        """The instance that may see its job's files and secrets with this token.

        Raises:
            NotAllowed: no such token, or the instance has ended.
        """
        held = self.node(token)
        if held.phase is InstancePhase.ENDED:
            raise NotAllowed(f"{held.id} has ended")
        return held

    def writing_node(self, token: str) -> HeldInstance:
        """The instance that may add to its job's log: one that has ended, as long as the job.

        Raises:
            NotAllowed: no such token, or both have ended.
        """
        held = self.node(token)
        if held.phase is InstancePhase.ENDED and self._store.jobs.get(held.job).phase.is_final:
            raise NotAllowed(f"{held.id} and its job have ended")
        return held

    def peer_token(self, job: str) -> str:
        """What the replicas of a job show each other; made from the key, kept nowhere."""
        return hmac.new(self._key, f"peer\n{job}".encode(), hashlib.sha256).hexdigest()

    def _sign(self, claims: dict[str, object]) -> str:
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def _subject(self, token: str, kind: str) -> str:
        try:
            claims = jwt.decode(token, self._key, algorithms=[_ALGORITHM])
        except jwt.InvalidTokenError as error:
            raise NotAllowed(f"the token can't be used: {error}") from None
        if claims.get("kind") != kind:
            raise NotAllowed(f"a {claims.get('kind')} token does not do here")
        return str(claims["sub"])
