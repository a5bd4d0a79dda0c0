"""Permissions of people: which role an action needs, on what is one's own and on the rest.

This module is pure. `RULES` has every action of the API; the routes name their actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.domain.access import Identity, Owner, Role
from autoscaler.domain.errors import Forbidden


class Subject(StrEnum):
    """Kind of thing whose owner decides on an action."""

    JOB = "job"
    STUDY = "study"
    PROGRAM = "program"
    BUNDLE = "bundle"
    PERSON = "person"


class AccessAction(StrEnum):
    """Kind of request of a person. The values are the actions of the audit log."""

    READ = "read"
    PLAN = "plan"
    SUBMIT = "submit"
    CHANGE_JOB = "change job"
    STOP_JOB = "stop job"
    RESUME_JOB = "resume job"
    ADOPT_CHECKPOINTS = "adopt checkpoints"
    READ_SPEC = "read spec"
    READ_LOGS = "read logs"
    FETCH_FILES = "fetch files"
    ADD_BUNDLE = "add bundle"
    USE_BUNDLE = "use bundle"
    USE_PROGRAM = "use program"
    FORGET_PROGRAM = "forget program"
    READ_STAYS = "read stays"
    CHANGE_STUDY = "change study"
    STOP_STUDY = "stop study"
    DRIVE_STUDY = "drive study"
    LEAVE_STUDY = "leave study"
    STATE_TERMS = "state terms"
    END_TRIALS = "end trials"
    REMOVE_CHECKPOINTS = "remove checkpoints"
    JOIN_STUDY = "join study"
    FREEZE = "freeze"
    UNFREEZE = "unfreeze"
    DRAIN = "drain"
    READ_PEOPLE = "read people"
    INVITE = "invite"
    ADD_PERSON = "add person"
    CHANGE_PERSON = "change person"
    REMOVE_PERSON = "remove person"
    READ_TOKENS = "read tokens"
    CREATE_TOKEN = "create token"
    ROTATE_TOKEN = "rotate token"
    REVOKE_TOKEN = "revoke token"
    READ_AUDIT = "read audit"
    OPEN_BROWSER = "open browser"
    READ_NOTIFICATIONS = "read notifications"
    TEST_NOTIFICATIONS = "test notifications"
    SET_BUDGET = "set budget"
    REMOVE_BUDGET = "remove budget"
    KEEP_BILL = "keep bill"


@dataclass(frozen=True, slots=True)
class Rule:
    """Roles that an action needs.

    `any_role` may take it on every subject, `own_role` on its own or its team's; None: no
    exception for owners. A subject without an owner counts as one's own.
    """

    any_role: Role
    own_role: Role | None = None
    subject: Subject | None = None
    is_for_services: bool = True


def _own(subject: Subject) -> Rule:
    return Rule(Role.OPERATOR, Role.SUBMITTER, subject)


_TOKENS: Final = Rule(Role.ADMIN, Role.VIEWER, Subject.PERSON, is_for_services=False)
_PEOPLE: Final = Rule(Role.ADMIN, is_for_services=False)

RULES: Final[dict[AccessAction, Rule]] = {
    AccessAction.READ: Rule(Role.VIEWER),
    AccessAction.PLAN: Rule(Role.SUBMITTER),
    AccessAction.SUBMIT: Rule(Role.SUBMITTER),
    AccessAction.ADD_BUNDLE: Rule(Role.SUBMITTER),
    **dict.fromkeys(
        (
            AccessAction.CHANGE_JOB,
            AccessAction.STOP_JOB,
            AccessAction.RESUME_JOB,
            AccessAction.ADOPT_CHECKPOINTS,
            AccessAction.READ_SPEC,
            AccessAction.READ_LOGS,
            AccessAction.FETCH_FILES,
        ),
        _own(Subject.JOB),
    ),
    AccessAction.USE_BUNDLE: _own(Subject.BUNDLE),
    AccessAction.USE_PROGRAM: _own(Subject.PROGRAM),
    AccessAction.FORGET_PROGRAM: _own(Subject.PROGRAM),
    **dict.fromkeys(
        (
            AccessAction.READ_STAYS,
            AccessAction.CHANGE_STUDY,
            AccessAction.STOP_STUDY,
            AccessAction.DRIVE_STUDY,
            AccessAction.LEAVE_STUDY,
            AccessAction.STATE_TERMS,
            AccessAction.END_TRIALS,
            AccessAction.REMOVE_CHECKPOINTS,
            AccessAction.JOIN_STUDY,
        ),
        _own(Subject.STUDY),
    ),
    AccessAction.FREEZE: Rule(Role.OPERATOR),
    AccessAction.UNFREEZE: Rule(Role.OPERATOR),
    AccessAction.DRAIN: Rule(Role.OPERATOR),
    AccessAction.READ_PEOPLE: _PEOPLE,
    AccessAction.INVITE: _PEOPLE,
    AccessAction.ADD_PERSON: _PEOPLE,
    AccessAction.CHANGE_PERSON: _PEOPLE,
    AccessAction.REMOVE_PERSON: _PEOPLE,
    AccessAction.READ_TOKENS: _TOKENS,
    AccessAction.CREATE_TOKEN: _TOKENS,
    AccessAction.ROTATE_TOKEN: _TOKENS,
    AccessAction.REVOKE_TOKEN: _TOKENS,
    AccessAction.READ_AUDIT: Rule(Role.ADMIN),
    AccessAction.OPEN_BROWSER: Rule(Role.VIEWER, is_for_services=False),
    AccessAction.READ_NOTIFICATIONS: Rule(Role.OPERATOR),
    AccessAction.TEST_NOTIFICATIONS: Rule(Role.OPERATOR),
    AccessAction.SET_BUDGET: Rule(Role.ADMIN),
    AccessAction.REMOVE_BUDGET: Rule(Role.ADMIN),
    AccessAction.KEEP_BILL: Rule(Role.OPERATOR),
}


def is_permitted(identity: Identity, action: AccessAction, owners: Sequence[Owner] = ()) -> bool:
    """Return whether an identity may take an action on a subject of these owners."""
    rule = RULES[action]
    if identity.is_service and not rule.is_for_services:
        return False
    if identity.role.covers(rule.any_role):
        return True
    if rule.own_role is None or not identity.role.covers(rule.own_role):
        return False
    return not owners or any(owner.is_shared_with(identity) for owner in owners)


def needs_owners(identity: Identity, action: AccessAction) -> bool:
    """Return whether the owners of the subject decide, beside the role."""
    rule = RULES[action]
    is_refused = identity.is_service and not rule.is_for_services
    return not is_refused and rule.subject is not None and not identity.role.covers(rule.any_role)


def require_permitted(
    identity: Identity, action: AccessAction, name: str = "", owners: Sequence[Owner] = ()
) -> None:
    """Check that an identity may take an action on the subject `name` of these owners.

    Raises:
        Forbidden: it may not; the message has the role that is needed.
    """
    if not is_permitted(identity, action, owners):
        raise Forbidden(_reason(identity, action, name, owners))


def _reason(identity: Identity, action: AccessAction, name: str, owners: Sequence[Owner]) -> str:
    rule, standing = RULES[action], f"{identity.person} is {_with_article(identity.role)}"
    if identity.is_service and not rule.is_for_services:
        return (
            f"{action}: the service token {identity.token} may not do this: use a token that "
            f"{identity.person} has for work by hand"
        )
    if rule.own_role is not None and identity.role.covers(rule.own_role):
        team = f"of team {identity.team}" if identity.team is not None else "of no team"
        names = " and ".join(str(owner) for owner in owners)
        return (
            f"{action}: {rule.subject} {name} belongs to {names}; {standing} {team}: this needs "
            f"its owner, the owner's team or the role {rule.any_role}"
        )
    role = rule.own_role or rule.any_role
    return f"{action}: needs the role {role}, and {standing}: ask an admin for castor people set"


def _with_article(role: Role) -> str:
    return f"an {role}" if role.value[0] in "aeiou" else f"a {role}"
