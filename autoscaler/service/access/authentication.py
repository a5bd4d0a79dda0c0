"""Authentication: bearer tokens of people and of instances.

An instance joins with a token from its user data: signed, bound to one instance, short-lived, for
a single use. It receives a node token: random, bound to the instance, and renewed by heartbeats.
Its signature counts only in a store that was restored without it. An instance that has ended can
use that token only to learn that it must drain. The store has hashes of tokens only. The signing
key is a file that only the controller's user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from threading import Lock

import jwt

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotAllowed, StoreError, Unavailable
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.service.access.people import PeopleAccess, digest
from autoscaler.service.threads import in_thread_of
from autoscaler.store.repositories.tokens import NodeToken
from autoscaler.store.store import Store

# Validity of join tokens: the pool's limit for joining, or this, and a margin for the launch.
_JOIN_SECONDS = 600.0
_LAUNCH_SECONDS = 300.0
# Validity of node tokens beside twice the time for which an agent lives without a controller.
_NODE_MARGIN_SECONDS = 600.0
_LEASE_SECONDS = 1800.0
_MOST_REMEMBERED = 100_000
# Longest difference between the clocks of a lost and of a restored controller's hosts.
_CLOCK_DIFFERENCE_SECONDS = 300.0

NO_TOKEN = "a token is needed: set CASTOR_TOKEN"

_ALGORITHM = "HS256"
_NODE_PATHS = "/v1/node/"
_HEARTBEAT_PATH = "/v1/node/heartbeat"
_JOIN, _NODE = "join", "node"
_KEY_BYTES = 32


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


class Authentication:
    """Issuer and verifier of tokens.

    `people` does the same for the tokens of people. An agent without a controller lives for
    `lease_seconds`; a node token lives long enough that such a gap never ends it.
    """

    def __init__(
        self, store: Store, key: bytes, clock: Clock, lease_seconds: float = _LEASE_SECONDS
    ) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._node_seconds = 2 * lease_seconds + _NODE_MARGIN_SECONDS
        self._nodes: dict[str, NodeToken] = {}
        self._nodes_lock = Lock()
        self.people = PeopleAccess(store, clock)

    def require_known(self, path: str, token: str | None) -> None:
        """Check that a token fits a path of the API, before the body of the request is read.

        Raises:
            NotAllowed: there is no token, or the path needs another kind.
        """
        if token is None:
            raise NotAllowed(NO_TOKEN)
        if path == _HEARTBEAT_PATH:
            self.reporting_node(token)
        elif path.startswith(_NODE_PATHS):
            self._instance(token)
        else:
            self.people.identity(token)

    def is_recognised(self, path: str, token: str | None) -> bool:
        """Return whether a token fits a path, judged without the store.

        This never blocks. False may mean that the store has to be asked.
        """
        if token is None:
            return False
        if not path.startswith(_NODE_PATHS):
            return self.people.known(token) is not None
        known = self._nodes.get(digest(token))
        return known is not None and known.expires_seconds > self._clock.now()

    async def check(self, path: str, token: str | None) -> None:
        """Check that a token fits a path, in a thread if the store has to be asked.

        Raises:
            NotAllowed: as `require_known`.
        """
        if not self.is_recognised(path, token):
            await in_thread_of(path, self.require_known, path, token)

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

    def candidate(self, token: str, instance: str, key: str | None = None) -> HeldInstance:
        """Return the instance that may join with this token, or join again with the same `key`.

        Raises:
            NotAllowed: the token is another's, expired or used, or the instance has ended.
            Unavailable: the cloud's list shows no capacity for the instance yet.
        """
        held = self.named(token, instance)
        if held.phase is InstancePhase.QUEUED:
            raise Unavailable(f"{instance} is in its cloud's queue, as far as its list says")
        if held.phase is InstancePhase.ENDED:
            raise NotAllowed(f"{instance} has been given up")
        key_hash = None if key is None else digest(key)
        if not self._store.tokens.is_good(digest(token), self._clock.now(), key_hash):
            raise _used_up(instance)
        return held

    def join(self, token: str, instance: str, key: str | None = None) -> str:
        """Use up a join token; return a new node token of the instance.

        The agent that presents the same random `key` may repeat this for a minute, since the
        reply may be lost. Earlier node tokens of the instance end.

        Raises:
            NotAllowed, Unavailable: as `candidate`.
        """
        self.candidate(token, instance, key)
        key_hash = None if key is None else digest(key)
        if not self._store.tokens.burn(digest(token), self._clock.now(), key_hash):
            raise _used_up(instance)
        return self._new_node_token(instance)

    def node(self, token: str) -> HeldInstance:
        """Return the instance of a node token; it may be draining or have ended.

        Raises:
            NotAllowed: the token is unknown or expired.
        """
        return self._store.instances.get(self._instance(token))

    def reporting_node(self, token: str) -> HeldInstance:
        """Return the instance of a node token for a heartbeat, which renews the token.

        An expired token is accepted while its instance lives, so that no jump of a clock and no
        pause of a host costs an instance.

        Raises:
            NotAllowed: the token is unknown, or it has expired and the instance has ended.
        """
        known = self._node_token(token)
        if known is None:
            return self.node(token)
        held = self._store.instances.get(known.instance)
        if held.phase is InstancePhase.ENDED:
            return self.node(token)
        return held

    def is_fresh(self, token: str) -> bool:
        """Return whether a node token needs no renewal yet, judged without the store.

        This never blocks. False may mean that the store has to be asked.
        """
        known = self._nodes.get(digest(token))
        return known is not None and self._lasts(known)

    def _lasts(self, token: NodeToken) -> bool:
        """Return whether a token has more than half of its life left, and no more than all."""
        left_seconds = token.expires_seconds - self._clock.now()
        return self._node_seconds / 2 < left_seconds <= self._node_seconds

    def renewed(self, token: str, held: HeldInstance) -> str | None:
        """Return a new node token if the presented one has lived for half of its time, else None.

        The presented one stays valid for the rest, since the reply may be lost. The new one
        replaces all others. Tokens of agents of earlier releases are not renewed.
        """
        known = self._node_token(token)
        if known is None or held.phase is InstancePhase.ENDED or self._lasts(known):
            return None
        return self._new_node_token(held.id, digest(token))

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

    def _new_node_token(self, instance: str, presented_hash: str | None = None) -> str:
        """Store a new node token and return its text; of others only the presented one stays."""
        now_seconds = self._clock.now()
        text = self._signed(f"{now_seconds:.3f}~{instance}~{secrets.token_urlsafe(32)}")
        token = NodeToken(instance, now_seconds, now_seconds + self._node_seconds)
        self._store.tokens.put_node(digest(text), token, presented_hash)
        with self._nodes_lock:
            # A new dictionary, so that no lookup under way adds a token that has ended.
            self._nodes = {
                token_hash: known
                for token_hash, known in self._nodes.copy().items()
                if known.instance != instance or token_hash == presented_hash
            } | {digest(text): token}
        return text

    def _node_token(self, token: str) -> NodeToken | None:
        """Return the facts of a node token; None if it is unknown or of an earlier release."""
        token_hash, nodes = digest(token), self._nodes
        known = (
            nodes.get(token_hash)
            or self._store.tokens.node(token_hash)
            or self._node_token_of_lost(token)
        )
        if known is not None:
            if len(nodes) >= _MOST_REMEMBERED:
                nodes.clear()
            nodes[token_hash] = known
        return known

    def _node_token_of_lost(self, token: str) -> NodeToken | None:
        """Return the facts of a node token that the store lost; None if it is not such a token.

        A store that was restored lacks the tokens issued since its backup. Their signature shows
        the instance, so that agents go on with the restored controller. All others must be known.
        """
        text = token.rpartition("~")[0]
        is_signed = hmac.compare_digest(self._signed(text).encode(), token.encode())
        if not text or not is_signed:
            return None
        issued, instance, _ = text.split("~")
        restoration = self._store.settings.restoration()
        if restoration is None:
            return None
        last_seconds = restoration.restored_seconds + _CLOCK_DIFFERENCE_SECONDS
        if not restoration.backup_seconds <= float(issued) <= last_seconds:
            return None
        return NodeToken(instance, float(issued), float(issued) + self._node_seconds)

    def _signed(self, text: str) -> str:
        """Return a text of a node token with its signature under the controller's key."""
        signature = hmac.new(self._key, f"node\n{text}".encode(), hashlib.sha256)
        return f"{text}~{signature.hexdigest()}"

    def _instance(self, token: str) -> str:
        """Return the instance of a node token.

        Raises:
            NotAllowed: the token is unknown or expired.
        """
        known = self._node_token(token)
        if known is None:
            return self._instance_of_signed(token)
        if known.expires_seconds <= self._clock.now():
            raise NotAllowed(
                f"the token of {known.instance} has expired: the next heartbeat of the "
                "instance renews it, unless the instance has ended"
            )
        return known.instance

    def _instance_of_signed(self, token: str) -> str:
        """Return the instance of a signed node token, which an earlier release has issued.

        Such a token ends with its instance, whose agent can't renew it.

        Raises:
            NotAllowed: it is no such token, or the instance joined with this release.
        """
        instance = self._subject(token, _NODE)
        if self._store.tokens.has_node(instance):
            raise NotAllowed(f"the token of {instance} was replaced")
        return instance

    def _subject(self, token: str, kind: str) -> str:
        try:
            claims = jwt.decode(token, self._key, algorithms=[_ALGORITHM])
        except jwt.InvalidTokenError as error:
            raise NotAllowed(f"the token can't be used: {error}") from None
        if claims.get("kind") != kind:
            raise NotAllowed(f"a {claims.get('kind')} token is not valid here")
        return str(claims["sub"])


def _used_up(instance: str) -> NotAllowed:
    return NotAllowed(f"the join token of {instance} has expired or was used before")
