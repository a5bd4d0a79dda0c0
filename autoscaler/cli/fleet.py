"""The words of commands about all jobs, people and instances of a controller."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from autoscaler.cli.options import Json
from autoscaler.cli.output import print_json


def drain(
    everything: Annotated[
        bool, typer.Option("--all", help="Say it: every job is stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Stop all jobs, with their checkpoints, and return when no instance is left in any cloud."""
    from autoscaler.cli.waiting import drain as drain_all
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    if not everything:
        raise typer.BadParameter("this stops every job: add --all, or use castor stop JOB")
    out = sys.stderr if as_json else sys.stdout
    drain_all(connect(), lambda left: print(f"left: {left}", file=out, flush=True), SystemClock())
    _print_done(as_json, "nothing is left: no instance of this deployment runs", drained=True)


def invite(
    person: Annotated[str, typer.Argument(help="By whose name jobs are submitted and shared.")],
    as_json: Json = False,
) -> None:
    """Let a person in: print the variables to set. It replaces their earlier token."""
    from autoscaler.wire.client import Client
    from autoscaler.wire.connection import address_and_token, is_loopback
    from autoscaler.wire.messages import Invitation

    url, token = address_and_token()
    invitation = Client(url, token).invite(person)
    if as_json:
        print_json(Invitation, invitation)
        return
    print(f"CASTOR_URL={url}\nCASTOR_TOKEN={invitation.token}")
    if is_loopback(url):
        text = "this URL works on the controller's machine only: docs/how-to.md, from elsewhere"
        print(f"castor: {text}", file=sys.stderr)


def freeze(as_json: Json = False) -> None:
    """Have nothing bought or given back until `castor unfreeze`, after a restart too."""
    from autoscaler.wire.connection import connect

    connect().freeze()
    text = "frozen: jobs go on with what they hold; castor unfreeze releases them"
    _print_done(as_json, text, frozen=True)


def unfreeze(as_json: Json = False) -> None:
    """Let the controller act on its decisions again."""
    from autoscaler.wire.connection import connect

    connect().unfreeze()
    text = "released: decisions are carried out again, unless the controller only observes"
    _print_done(as_json, text, frozen=False)


def reclaim(
    instance: Annotated[str, typer.Argument(help="As castor status --json names it.")],
    as_json: Json = False,
) -> None:
    """Take a local instance back, as a cloud does with spot: notice first, then the end."""
    from autoscaler.cli.local_cloud import reclaim as take_back
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect, state_directory

    take_back(state_directory(), connect(), instance, SystemClock())
    _print_done(as_json, f"{instance}: notice is given", instance=instance, noticed=True)


def _print_done(as_json: bool, text: str, **facts: object) -> None:
    """Print what was done: as a sentence, or its facts as JSON."""
    print(json.dumps(facts) if as_json else text)
