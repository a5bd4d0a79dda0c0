"""The words of `castor replay`; what it does is in `replaying`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Policy = Annotated[str, Option(help="Who plans instead.")]
State = Annotated[
    Path | None, Option(envvar="CASTOR_STATE", help="State directory of the run's controller.")
]
StoreUrl = Annotated[str | None, Option("--store", help="Its store, if that is elsewhere.")]
Job = Annotated[str | None, Option(help="Of this job alone.")]
Last = Annotated[int | None, Option(min=1, help="So many decisions, the latest; all by default.")]
Everything = Annotated[bool, Option("--all", help="Decisions that are the same too.")]
JsonFile = Annotated[Path | None, Option("--json", help="Write all of them there.")]


def replay(
    policy: Policy,
    state: State = None,
    store: StoreUrl = None,
    job: Job = None,
    last: Last = None,
    everything: Everything = False,
    json_file: JsonFile = None,
) -> None:
    """Show what another policy would have decided at each moment of a run."""
    from autoscaler.cli import replaying
    from autoscaler.wire.connection import state_directory

    found = replaying.replay_of(store, state or state_directory(), policy, job, last)
    if json_file is not None:
        replaying.write_replay(found, json_file)
    replaying.print_replay(found, everything)
