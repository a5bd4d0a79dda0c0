"""Authorization of requests by their action and subject, and rows of the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.domain.access import Identity, Owner
from autoscaler.domain.audit import AuditEntry, shortened
from autoscaler.domain.job import JobRecord
from autoscaler.domain.job_names import meant_job, require_one_meaning
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.permissions import (
    RULES,
    AccessAction,
    Subject,
    is_permitted,
    needs_owners,
    require_permitted,
)
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store

_OWNED_KINDS = {
    Subject.STUDY: OwnedKind.STUDY,
    Subject.PROGRAM: OwnedKind.PROGRAM,
    Subject.BUNDLE: OwnedKind.BUNDLE,
}
_CHANGES_OF_JOBS = (AccessAction.CHANGE_JOB, AccessAction.STOP_JOB, AccessAction.RESUME_JOB)
# Owner of bundles of before owners were stored. Nobody has this name.
_NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class AccessGate:
    """Decision on requests of people, by the rules of `permissions` and the stored owners."""

    authentication: Authentication
    store: Store
    clock: Clock

    def require(self, identity: Identity, action: AccessAction, name: str = "") -> None:
        """Check that an identity may take an action on the subject `name`, which is no job.

        Raises:
            Forbidden: it may not.
        """
        require_on_subject(self.store, identity, action, name)

    def job(self, identity: Identity, action: AccessAction, name: str) -> JobRecord:
        """Return the job that a name or id means to an identity that takes an action.

        Raises:
            Forbidden: the action is not permitted on that job.
            UnknownJob: there is no such job.
            Conflict: the action changes the job, and several jobs may be meant.
        """
        jobs = self.store.jobs.named(name)
        job = meant_job(jobs, identity)
        require_permitted(identity, action, job.id, (job.spec.owner,))
        if action in _CHANGES_OF_JOBS:
            permitted = [
                other for other in jobs if is_permitted(identity, action, (other.spec.owner,))
            ]
            require_one_meaning(name, permitted, job, identity)
        return job

    def needs_store(self, identity: Identity, action: AccessAction) -> bool:
        """Return whether `require` reads the store, which may block."""
        return needs_owners(identity, action)

    def record(self, identity: Identity, action: AccessAction, change: Recorded) -> None:
        """Add a change to the audit log."""
        self.store.audit.add(
            AuditEntry(
                self.clock.now(),
                identity.person,
                identity.token,
                identity.role,
                action,
                change.subject,
                shortened(change.before),
                shortened(change.after),
            )
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Subject of a change, and its values before and after; empty for none."""

    subject: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Requester:
    """Person behind a permitted request, and the action that was permitted."""

    identity: Identity
    action: AccessAction
    record_change: Callable[[Identity, AccessAction, Recorded], None]
    permitted_job: JobRecord | None = None

    @property
    def job(self) -> JobRecord:
        """Job on which the action was permitted; only for actions on jobs.

        A handler that looked for the name again could find a job that was submitted meanwhile.
        """
        assert self.permitted_job is not None, "the action is on a job"
        return self.permitted_job

    @property
    def owner(self) -> Owner:
        """Owner of what this request makes."""
        return Owner(self.identity.person, self.identity.team)

    def record(
        self, subject: str, before: str = "", after: str = "", action: AccessAction | None = None
    ) -> None:
        """Add a row to the audit log, of the permitted action or of another one."""
        change = Recorded(subject, before, after)
        self.record_change(self.identity, action or self.action, change)


def require_on_subject(store: Store, identity: Identity, action: AccessAction, name: str) -> None:
    """Check that an identity may take an action on the subject `name`, which is no job.

    Raises:
        Forbidden: it may not.
    """
    owners: tuple[Owner, ...] = ()
    if needs_owners(identity, action):
        owners = _owners(store, RULES[action].subject, name)
    require_permitted(identity, action, name, owners)


def claim_study(store: Store, study: str, identity: Identity) -> None:
    """Make an identity the owner of a study that has none.

    Raises:
        Forbidden: the study belongs to another person, and the identity may not join it.
    """
    owner = store.owners.claim(OwnedKind.STUDY, study, Owner(identity.person, identity.team))
    require_permitted(identity, AccessAction.JOIN_STUDY, study, (owner,))


def has_bundle(store: Store, identity: Identity, sha256: str) -> bool:
    """Return whether an identity may use a bundle: who has uploaded it has its content."""
    owners = store.owners.of(OwnedKind.BUNDLE, sha256)
    return is_permitted(identity, AccessAction.USE_BUNDLE, owners or (_NOBODY,))


def _owners(store: Store, subject: Subject | None, name: str) -> tuple[Owner, ...]:
    if subject is Subject.PERSON:
        return (Owner(name),)
    kind = None if subject is None else _OWNED_KINDS[subject]
    return () if kind is None else store.owners.of(kind, name)
