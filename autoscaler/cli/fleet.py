"""Commands on a controller as a whole: drain, freeze, unfreeze, reclaim."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from autoscaler.cli.options import Json, Yes
from autoscaler.cli.output import confirm


def drain(
    everything: Annotated[
        bool, typer.Option("--all", help="Confirm that every job is stopped. Required.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Stop all jobs and wait until no instance is left.

    Each job saves a checkpoint first. Instances are counted in all clouds of the controller. A
    script must say -y.
    """
    from autoscaler.cli.submit.waiting import drain as drain_all
    from autoscaler.cli.tables import counted
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    if not everything:
        raise typer.BadParameter("this stops every job: add --all, or use castor stop JOB")
    client = connect()
    if not yes:
        jobs = counted(len(client.jobs(include_ended=False)), "job")
        instances = counted(len(client.fleet().instances), "instance")
        confirm(f"this stops {jobs} on {instances} of all people", yes, needs_yes=True)
    out = sys.stderr if as_json else sys.stdout
    drain_all(client, lambda left: print(f"left: {left}", file=out, flush=True), SystemClock())
    _print_done(as_json, "nothing is left: no instance of this deployment runs", drained=True)


def freeze(as_json: Json = False) -> None:
    """Stop all launches and releases until `castor unfreeze`.

    The controller stays frozen after a restart, too.
    """
    from autoscaler.wire.connection import connect

    connect().freeze()
    text = "frozen: jobs keep the instances that they hold; castor unfreeze ends this"
    _print_done(as_json, text, frozen=True)


def unfreeze(as_json: Json = False) -> None:
    """Let the controller carry out its decisions again."""
    from autoscaler.wire.connection import connect

    connect().unfreeze()
    text = "unfrozen: decisions are carried out again, unless castor serve runs with --observe"
    _print_done(as_json, text, frozen=False)


def reclaim(
    instance: Annotated[
        str, typer.Argument(help="Id of the instance, as in castor status --json.")
    ],
    as_json: Json = False,
) -> None:
    """Reclaim a local instance, to test a spot interruption.

    The instance receives a notice first, and ends later.
    """
    from autoscaler.cli.local_cloud import reclaim as reclaim_local
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect, state_directory

    reclaim_local(state_directory(), connect(), instance, SystemClock())
    _print_done(as_json, f"{instance}: notice given", instance=instance, noticed=True)


def _print_done(as_json: bool, text: str, **facts: object) -> None:
    """Print the result of a command: `text`, or `facts` as JSON."""
    print(json.dumps(facts) if as_json else text)
