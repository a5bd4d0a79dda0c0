"""Authentication: bearer tokens of users, signed tokens of nodes.

A node joins with a token from its user data: signed, bound to one instance, short-lived, for a
single use. It receives a node token for the instance's life. An instance that has ended can use
that token only to learn that it must drain. Of users' tokens only hashes are stored. The signing
key is a file that only the controller's user can read.
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
# Validity of join tokens: the pool's limit for joining, or this, and a margin for the launch.
_JOIN_SECONDS = 600.0
_LAUNCH_SECONDS = 300.0

NO_TOKEN = "a token is needed: set CASTOR_TOKEN"

_ALGORITHM = "HS256"
_NODE_PATHS = "/v1/node/"
_JOIN, _NODE = "join", "node"
_KEY_BYTES = 32
_PERSON = re.compile(r"[a-z0-9][a-z0-9.@_-]{0,79}")


def load_key(path: Path) -> bytes:
    """Return the signing key at `path`.

    Create it, readable by its owner only, if there is none.

    Raises:
        StoreError: the file can't be read or is no key.
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
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


class Authentication:
    """Issuer and verifier of tokens."""

    def __init__(self, store: Store, key: bytes, clock: Clock) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._known: dict[str, str] = {}

    def set_person(self, name: str, token: str) -> None:
        """Set the only token of a user."""
        self._store.tokens.set_person(name, digest(token))
        self._known = {}

    def invite(self, name: str, by: str) -> str:
        """Return a new token for a user; an earlier token becomes invalid.

        Raises:
            NotAllowed: the requester is not the owner.
            SpecError: the name is invalid, or the owner's.
        """
        if by != OWNER:
            raise NotAllowed(f"only {OWNER} may invite users, not {by}")
        if name == OWNER or not _PERSON.fullmatch(name):
            raise SpecError(
                f"{name!r} can't be invited: take another name, of a-z, 0-9 and .@_-", "name"
            )
        token = secrets.token_urlsafe(32)
        self.set_person(name, token)
        return token

    def person(self, token: str) -> str:
        """Return the user of a token.

        Raises:
            NotAllowed: the token is unknown.
        """
        key = digest(token)
        known = self._known  # a change of tokens replaces this dictionary
        name = known.get(key) or self._store.tokens.person(key)
        if name is None:
            raise NotAllowed(
                "this token is not known here: take the one in the controller's state directory, "
                "or set CASTOR_TOKEN"
            )
        known[key] = name
        return name

    def require_known(self, path: str, token: str | None) -> None:
        """Check that a token fits a path of the API, before the body of the request is read.

        Raises:
            NotAllowed: there is no token, or the path needs another kind.
        """
        if token is None:
            raise NotAllowed(NO_TOKEN)
        if path.startswith(_NODE_PATHS):
            self._subject(token, _NODE)
        else:
            self.person(token)

    def is_recognised(self, path: str, token: str | None) -> bool:
        """Return whether a token fits a path, judged without the store.

        This never blocks. False may mean that the store has to be asked.
        """
        if token is None or not path.startswith(_NODE_PATHS):
            return token is not None and self.known_person(token) is not None
        try:
            self._subject(token, _NODE)
        except NotAllowed:
            return False
        return True

    def known_person(self, token: str) -> str | None:
        """Return the user of a token that was seen before; None if the store has to be asked."""
        return self._known.get(digest(token))

    def join_token(self, held: HeldInstance) -> str:
        """Return the token with which an instance may join once.

        Every call returns the same token, since a repeated launch carries the same user data. Only
        the store knows when the token expires.
        """
        return self._sign({"kind": _JOIN, "sub": held.id})

    def issue(self, held: HeldInstance) -> None:
        """Make the join token of an instance valid for one use, within its limit for joining.

        This is called before each call that may launch the instance.
        """
        token = self.join_token(held)
        valid_seconds = (held.join_seconds or _JOIN_SECONDS) + _LAUNCH_SECONDS
        self._store.tokens.issue(digest(token), held.id, self._clock.now() + valid_seconds)

    def named(self, token: str, instance: str) -> HeldInstance:
        """Return the instance of a join token, valid or not.

        Raises:
            NotAllowed: the token belongs to another instance.
        """
        if self._subject(token, _JOIN) != instance:
            raise NotAllowed(f"the join token is not for {instance}")
        return self._store.instances.get(instance)

    def candidate(self, token: str, instance: str) -> HeldInstance:
        """Return the instance that may join with this token.

        Raises:
            NotAllowed: the token is another's, expired or used, or the instance has ended.
            Unavailable: the cloud's list shows no capacity for the instance yet.
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
        """Use up a join token; return the node token of the instance.

        Raises:
            NotAllowed: as `candidate`.
        """
        self.candidate(token, instance)
        if not self._store.tokens.burn(digest(token), self._clock.now()):
            raise NotAllowed(f"the join token of {instance} has expired or was used before")
        return self._sign({"kind": _NODE, "sub": instance})

    def node(self, token: str) -> HeldInstance:
        """Return the instance of a node token; it may be draining or have ended.

        Raises:
            NotAllowed: the token is unknown.
        """
        return self._store.instances.get(self._subject(token, _NODE))

    def working_node(self, token: str) -> HeldInstance:
        """Return the instance of a node token, for its job's files and secrets.

        Raises:
            NotAllowed: the token is unknown, or the instance has ended.
        """
        held = self.node(token)
        if held.phase is InstancePhase.ENDED:
            raise NotAllowed(f"{held.id} has ended")
        return held

    def writing_node(self, token: str) -> HeldInstance:
        """Return the instance of a node token, for writes to its job's log.

        Raises:
            NotAllowed: the token is unknown, or both the instance and its job have ended.
        """
        held = self.node(token)
        if held.phase is InstancePhase.ENDED and self._store.jobs.get(held.job).phase.is_final:
            raise NotAllowed(f"{held.id} and its job have ended")
        return held

    def peer_token(self, job: str) -> str:
        """Return the token that the replicas of a job show each other.

        It is derived from the key.
        """
        return hmac.new(self._key, f"peer\n{job}".encode(), hashlib.sha256).hexdigest()

    def _sign(self, claims: dict[str, object]) -> str:
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def _subject(self, token: str, kind: str) -> str:
        try:
            claims = jwt.decode(token, self._key, algorithms=[_ALGORITHM])
        except jwt.InvalidTokenError as error:
            raise NotAllowed(f"the token can't be used: {error}") from None
        if claims.get("kind") != kind:
            raise NotAllowed(f"a {claims.get('kind')} token is not valid here")
        return str(claims["sub"])
