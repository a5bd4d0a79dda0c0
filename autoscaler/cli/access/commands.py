"""Commands on people, their tokens and the audit log. They import what they need when called."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument, BadParameter, Context, Option, Typer

from autoscaler.cli.options import Json, Yes, words_of
from autoscaler.cli.output import confirm
from autoscaler.domain.access import MYSELF, NO_TEAM, Role

people = Typer(help="List, change and remove people of the controller.")
token = Typer(help="Make, list, replace and revoke access tokens.", no_args_is_help=True)

PersonName = Annotated[str, Argument(help="Name of a person, as in `castor people`.")]
TokenName = Annotated[str, Argument(help="Name of the token, as in `castor token list`.")]
For = Annotated[
    str, Option("--for", help="Person whose token it is; default: yourself.", metavar="PERSON")
]
Expires = Annotated[
    str | None,
    Option(
        "--expires",
        help="Validity, such as 12h or 30d, to the end of the present token at most. Default: "
        "90d, or to that end.",
        metavar="DURATION",
    ),
]
Grace = Annotated[
    str,
    Option(
        help="Time for which the earlier token stays valid, such as 1h; 0: none.",
        metavar="DURATION",
    ),
]
_ROLE = Option("--role", help="Role; each includes those before.", **words_of(Role))
RoleOption = Annotated[Role | None, _ROLE]


def invite(
    person: Annotated[str, Argument(help="User name, the owner of the jobs submitted.")],
    role: RoleOption = None,
    team: Annotated[str | None, Option(help="Team, which shares its jobs and studies.")] = None,
    expires: Expires = None,
    as_json: Json = False,
) -> None:
    """Create an access token for a user, and print it.

    Prints the environment variables that the user must set. A new user is a submitter without
    --role. The token of an earlier invitation is no longer valid.
    """
    from autoscaler.cli.output import print_json
    from autoscaler.wire.access_messages import Invitation, InvitationRequest
    from autoscaler.wire.connection import address_and_token, is_loopback

    request = InvitationRequest(role, team, _validity_seconds(expires))
    address = address_and_token()
    invitation = address.client().invite(person, request)
    if as_json:
        print_json(Invitation, invitation)
        return
    print(f"CASTOR_URL={address.url}\nCASTOR_TOKEN={invitation.token}")
    if address.authority is not None:
        text = f"CASTOR_CA names a copy of {address.authority}, which {person} needs too"
        print(f"castor: {text}", file=sys.stderr)
    if is_loopback(address.url):
        text = "this URL works on the controller's machine only; docs/how-to.md: from elsewhere"
        print(f"castor: {text}", file=sys.stderr)


@people.callback(invoke_without_command=True)
def listed(context: Context, as_json: Json = False) -> None:
    """Print a table of all people, if no sub-command is named."""
    if context.invoked_subcommand is None:
        list_people(as_json)


@people.command("list")
def list_people(as_json: Json = False) -> None:
    """Print a table of all people, as without a sub-command."""
    from autoscaler.cli.access.tables import people_table
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.wire.access_messages import PersonView
    from autoscaler.wire.connection import connect

    everyone = connect().people()
    if as_json:
        print_json(tuple[PersonView, ...], everyone)
    else:
        print_whole(people_table(everyone))


@people.command("add")
def add_person(
    name: Annotated[str, Argument(help="Name at the identity provider, such as an e-mail.")],
    role: Annotated[Role, _ROLE] = Role.SUBMITTER,
    team: Annotated[str | None, Option(help="Team, which shares its jobs and studies.")] = None,
    as_json: Json = False,
) -> None:
    """Add a person without a token, who uses castor login.

    docs/security.md has the roles, and how a controller gets an identity provider.
    """
    from autoscaler.cli.output import print_json
    from autoscaler.domain.access import Person
    from autoscaler.wire.access_messages import NewPerson
    from autoscaler.wire.connection import connect

    person = connect().add_person(NewPerson(name, role, team))
    if as_json:
        print_json(Person, person)
    else:
        print(f"{person.name}: {person.role}, team {person.team or NO_TEAM}")


@people.command("set")
def set_person(
    name: PersonName,
    role: RoleOption = None,
    team: Annotated[
        str | None, Option(help="Team, which shares its jobs and studies; none: no team.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change role or team of a person. Tokens follow at once; earlier jobs keep their team."""
    from autoscaler.cli.output import print_json
    from autoscaler.domain.access import Person
    from autoscaler.wire.access_messages import PersonChange
    from autoscaler.wire.connection import connect

    if role is None and team is None:
        raise BadParameter("name what changes: --role or --team")
    leaves_team = team == NO_TEAM
    change = PersonChange(role, None if leaves_team else team, leaves_team)
    person = connect().change_person(name, change)
    if as_json:
        print_json(Person, person)
    else:
        print(f"{person.name}: {person.role}, team {person.team or NO_TEAM}")


@people.command("remove")
def remove_person(name: PersonName, yes: Yes = False) -> None:
    """Remove a person and revoke all tokens. Jobs of the person run on."""
    from autoscaler.wire.connection import connect

    confirm(f"this removes {name}, and revokes all tokens of {name}", yes)
    connect().remove_person(name)
    print(f"{name}: removed, and all tokens revoked")


@token.command("create")
def create_token(
    name: Annotated[str, Argument(help="Name of the new token, such as laptop or ci.")],
    role: RoleOption = None,
    service: Annotated[
        bool, Option("--service", help="For a program, such as CI: it manages no tokens.")
    ] = False,
    expires: Expires = None,
    person: For = MYSELF,
    as_json: Json = False,
) -> None:
    """Create an access token, and print it once.

    It permits at most what the present token does, and less with --role.
    """
    from autoscaler.wire.access_messages import TokenRequest
    from autoscaler.wire.connection import connect

    request = TokenRequest(name, role, service, _validity_seconds(expires))
    _print_new(connect().create_token(request, person), as_json)


@token.command("list")
def list_tokens(person: For = MYSELF, as_json: Json = False) -> None:
    """Print the tokens of a person, without their texts.

    Each row has the role, the state, when the token expires, and when it was used last.
    """
    from autoscaler.cli.access.tables import tokens_table
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.clock import SystemClock
    from autoscaler.domain.access import AccessToken
    from autoscaler.wire.connection import connect

    tokens = connect().tokens(person)
    if as_json:
        print_json(tuple[AccessToken, ...], tokens)
    else:
        print_whole(tokens_table(tokens, SystemClock().now()))


@token.command("rotate")
def rotate_token(
    name: TokenName, grace: Grace = "1h", person: For = MYSELF, as_json: Json = False
) -> None:
    """Replace a token by a new one, and print it once.

    Name, role and validity stay. The new one ends with the present token at the latest: it renews
    no token for longer.
    """
    from autoscaler.wire.connection import connect

    grace_seconds = 0.0 if grace == "0" else _seconds(grace, "--grace")
    _print_new(connect().rotate_token(name, grace_seconds, person), as_json)


@token.command("revoke")
def revoke_token(name: TokenName, person: For = MYSELF, yes: Yes = False) -> None:
    """Revoke a token at once, also one that a rotation has replaced."""
    from autoscaler.wire.connection import connect

    confirm(f"this revokes {name} for good: what uses it is refused from now on", yes)
    connect().revoke_token(name, person)
    print(f"{name}: revoked")


def audit(
    since: Annotated[
        str, Option(help="Print changes of the last DURATION.", metavar="DURATION")
    ] = "7d",
    number: Annotated[int, Option("-n", min=1, help="Most rows to print, the latest.")] = 1000,
    as_json: Json = False,
) -> None:
    """Print the audit log: changes by people, and launches.

    Launches are those of the controller. Only admins may read it.
    """
    from autoscaler.cli.access.tables import audit_table
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.clock import SystemClock
    from autoscaler.domain.audit import AuditEntry
    from autoscaler.wire.connection import connect

    since_seconds = SystemClock().now() - _seconds(since, "--since")
    rows = connect().audit(max(since_seconds, 0.0), limit=number)
    if as_json:
        print_json(tuple[AuditEntry, ...], rows)
    else:
        print_whole(audit_table(rows))


def _print_new(new: object, as_json: bool) -> None:
    from autoscaler.cli.output import print_json
    from autoscaler.wire.access_messages import NewToken

    assert isinstance(new, NewToken)
    if as_json:
        print_json(NewToken, new)
    else:
        print(f"CASTOR_TOKEN={new.token}")


def _validity_seconds(expires: str | None) -> float | None:
    """Return the seconds of --expires; None: the controller's default.

    Raises:
        BadParameter: the text is no duration.
    """
    return None if expires is None else _seconds(expires, "--expires")


def _seconds(text: str, option: str) -> float:
    """Return the seconds of a duration.

    Raises:
        BadParameter: the text is no duration.
    """
    from autoscaler.spec.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadParameter(str(error), param_hint=option) from None
