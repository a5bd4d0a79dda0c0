"""Command `castor adopt`: a new controller ends the instances of one whose state was lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Store

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def adopt(
    controller: Annotated[
        str,
        Argument(help="Id of the lost controller, as castor status or a cloud's labels have it."),
    ],
    state: Annotated[
        Path | None, Option(envvar="CASTOR_STATE", help="State directory of the new controller.")
    ] = None,
    store: Store = None,
) -> None:
    """End the instances of a lost controller: take its id.

    Instances are labelled with their controller's id. A new controller with the id of a lost one
    lists them, has no job for them, and ends them. It must be stopped, and have had no job yet.
    """
    from autoscaler.domain.errors import SpecError
    from autoscaler.state_directory import store_url_of
    from autoscaler.wire.connection import state_directory

    directory = state or state_directory()
    if not directory.is_dir():
        raise SpecError(f"{directory} does not exist: run castor serve there once", "--state")
    if _ID.fullmatch(controller) is None:
        raise SpecError(
            f"{controller} is no id of a controller, which is like "
            "1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f: see the tag castor:controller (EC2), or the "
            "label castor-controller (Compute Engine)",
            "CONTROLLER",
        )
    adopt_id(controller, directory, store_url_of(directory, store))
    print(f"this controller is {controller} now: castor serve ends what its cloud lists of it")


def adopt_id(controller: str, state: Path, store_url: str) -> None:
    """Replace the id of a store without jobs.

    Raises:
        Conflict: the controller runs.
        SpecError: the store has jobs.
        StoreError: the store can't be opened.
    """
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError
    from autoscaler.lead import Lead
    from autoscaler.state_directory import hold_state
    from autoscaler.store.sql.file_lock import hold_database, process_name
    from autoscaler.store.sql.leadership import LEASE_SECONDS, LeaseCandidate

    with hold_state(state), hold_database(store_url, state):
        lead = Lead(store_url, LeaseCandidate(process_name(), ""), LEASE_SECONDS, SystemClock())
        try:
            lead.begin(follows=False)
            if lead.store.jobs.all():
                raise SpecError(
                    "this controller has jobs, whose instances it would lose: name the state "
                    "directory of a new one",
                    "--state",
                )
            lead.store.settings.adopt(controller)
        finally:
            lead.end()
