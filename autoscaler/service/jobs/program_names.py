"""Programs that jobs may use: measurements of one's own, of one's team, or of nobody yet.

The measurements of a program decide what its next jobs buy. Jobs of another person or team
neither begin with them nor add to them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import replace

from autoscaler.domain.access import Identity, Owner, Role
from autoscaler.domain.errors import Conflict, Forbidden
from autoscaler.domain.job import JobSpec
from autoscaler.service.access.permissions import AccessAction, is_permitted
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store

_PREFIX_LENGTH = 31
_DIGEST_LENGTH = 8


def with_program(store: Store, spec: JobSpec, owner: Owner, requester: Identity) -> JobSpec:
    """Return a job with a program that it may use and extend.

    A job that names no program, and a trial of a study, have the program of their name. If it
    belongs to others, they get a program of their owner or the owner's team with another name.

    Args:
        store: store with the owners of programs.
        spec: job of a request.
        owner: owner of the job.
        requester: person who submits or resumes the job.

    Raises:
        Forbidden: the job names a program of others.
    """
    if spec.program is not None and spec.program != spec.study:
        owners = store.owners.of(OwnedKind.PROGRAM, spec.program)
        if not _may_use(owner, owners) and not is_permitted(
            requester, AccessAction.USE_PROGRAM, owners
        ):
            raise _forbidden(spec.program, owners)
        return spec
    for name in _automatic_names(spec.program_name, owner):
        if _may_use(owner, store.owners.of(OwnedKind.PROGRAM, name)):
            return spec if name == spec.program_name else replace(spec, program=name)
    raise AssertionError("one of endlessly many names is free")


def claim_program(store: Store, spec: JobSpec, requester: Identity) -> None:
    """Make the owner of a job that of its program, if the program has none.

    Raises:
        Conflict: another person has claimed it since `with_program`.
    """
    owner = store.owners.claim(OwnedKind.PROGRAM, spec.program_name, spec.owner)
    may_use = _may_use(spec.owner, (owner,))
    if not may_use and not is_permitted(requester, AccessAction.USE_PROGRAM, (owner,)):
        raise Conflict(
            f"program: {spec.program_name} was used by {owner} for the first time just now: "
            "submit the job again"
        )


def renamed_note(requested: JobSpec, used: JobSpec) -> str:
    """Return the remark of an event on a job whose program has another name than requested."""
    if used.program_name == requested.program_name:
        return ""
    return (
        f"; its program is {used.program_name}, since {requested.program_name} belongs to others"
    )


def _may_use(owner: Owner, owners: tuple[Owner, ...]) -> bool:
    """Return whether jobs of an owner may use a program of these owners; without any, all may."""
    identity = Identity(owner.person, Role.SUBMITTER, owner.team)
    return is_permitted(identity, AccessAction.USE_PROGRAM, owners)


def _automatic_names(name: str, owner: Owner) -> Iterator[str]:
    """Yield the name itself, and then names for its use by the owner or the owner's team.

    Another person may have taken the first of them on purpose.
    """
    yield name
    group = f"person {owner.person}" if owner.team is None else f"team {owner.team}"
    for number in itertools.count(1):
        digest = hashlib.sha256(f"{name} {group} {number}".encode()).hexdigest()
        yield f"{name[:_PREFIX_LENGTH]}-{digest[:_DIGEST_LENGTH]}"


def _forbidden(program: str, owners: tuple[Owner, ...]) -> Forbidden:
    names = " and ".join(str(owner) for owner in owners)
    return Forbidden(
        f"program: {program} belongs to {names}, and only jobs of its owner and the owner's team "
        "use its measurements and add to them: leave the key out, or write another name"
    )
