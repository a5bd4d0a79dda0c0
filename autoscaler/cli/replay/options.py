"""Options of `castor replay`. The command imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Policy = Annotated[str, Option(help="Policy to compare with the decisions of the run.")]
State = Annotated[
    Path | None, Option(envvar="CASTOR_STATE", help="State directory of the run's controller.")
]
StoreUrl = Annotated[
    str | None,
    Option("--store", help="URL of the controller's database; default: SQLite in --state."),
]
Job = Annotated[str | None, Option(help="Replay the decisions of this job only.")]
Last = Annotated[
    int | None, Option(min=1, help="Number of latest decisions to replay; default: all.")
]
Everything = Annotated[bool, Option("--all", help="Print decisions that are equal, too.")]
JsonFile = Annotated[Path | None, Option("--json", help="Write all decisions to this file.")]


def replay(
    policy: Policy,
    state: State = None,
    store: StoreUrl = None,
    job: Job = None,
    last: Last = None,
    everything: Everything = False,
    json_file: JsonFile = None,
) -> None:
    """Compare past decisions with those of another policy.

    The policy plans from the state that the controller recorded at each decision.
    """
    from autoscaler.cli.replay import run
    from autoscaler.wire.connection import state_directory

    comparison = run.replay_of(store, state or state_directory(), policy, job, last)
    if json_file is not None:
        run.write_replay(comparison, json_file)
    run.print_replay(comparison, everything)
