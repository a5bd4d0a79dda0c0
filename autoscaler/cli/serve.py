"""The words of `castor serve`; what it does with them is in `serving`, imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.domain.training import Engine

State = Annotated[
    Path | None,
    Option(envvar="CASTOR_STATE", help="Directory of the store, logs and checkpoints."),
]
Store = Annotated[str | None, Option(help="URL of a database; by default SQLite in --state.")]
Host = Annotated[str, Option(help="Address to listen on. Instances connect to it.")]
Port = Annotated[int, Option(help="Port to listen on; 0: any free port.")]
Policy = Annotated[str, Option(help="Policy that plans instances; see docs/simulator.md.")]
FleetPrice = Annotated[
    float | None, Option(help="Most dollars an hour for all instances together.")
]
FleetTotal = Annotated[
    str | None,
    Option(help="Most dollars for all jobs, ever: 500, or none. Required with --pools."),
]
JobTotal = Annotated[
    str | None,
    Option(help="Budget of a job that names none: 50, or none. Default with --pools: 50."),
]
StudyTotal = Annotated[
    str | None,
    Option(help="Budget of a study that names none: 200, or none. Default with --pools: 200."),
]
Fleet = Annotated[
    Path | None, Option(help="Shares of users and agreed prices; see docs/economics.md.")
]
Pools = Annotated[
    list[str] | None,
    Option(
        help="Pools in a cloud: a file, ssm:/NAME or gs://BUCKET/NAME; see docs/aws.md, gcp.md."
    ),
]
Devices = Annotated[
    str | None,
    Option(help="Cores of this machine that jobs may use: 0,1,2. Default without --pools: all."),
]
BootSeconds = Annotated[float, Option(help="Boot delay of local instances.")]
ReclaimsPerHour = Annotated[
    float,
    Option(
        help="How often an hour a local spot instance is taken back at random, as clouds do. "
        "0: never."
    ),
]
CheckpointSeconds = Annotated[
    float, Option(help="Time between checkpoints of a job that names none.")
]
Lease = Annotated[
    str, Option(help="An instance ends after this time without contact to the controller.")
]
Observe = Annotated[
    bool, Option("--observe", help="Plan and show decisions only: launch and end no instance.")
]
HowTrained = Annotated[
    Engine | None,
    Option(help="How instances train together. Default: quorum if torchft is installed."),
]
Secrets = Annotated[
    list[Path] | None,
    Option(help="Directory whose files jobs may name as secrets; may be repeated."),
]
SecretVariables = Annotated[
    str | None, Option(help="Variables of `castor serve` that jobs may name as secrets: A,B.")
]
Parent = Annotated[int | None, Option(hidden=True)]


def serve(
    state: State = None,
    store: Store = None,
    host: Host = "127.0.0.1",
    port: Port = 8470,
    policy: Policy = "marginal",
    fleet_usd_per_hour: FleetPrice = None,
    fleet_usd: FleetTotal = None,
    job_usd: JobTotal = None,
    study_usd: StudyTotal = None,
    fleet: Fleet = None,
    pools: Pools = None,
    devices: Devices = None,
    boot_seconds: BootSeconds = 1.0,
    reclaims_per_hour: ReclaimsPerHour = 0.0,
    checkpoint_seconds: CheckpointSeconds = 300.0,
    lease: Lease = "30m",
    observe: Observe = False,
    engine: HowTrained = None,
    secrets: Secrets = None,
    secret_variables: SecretVariables = None,
    parent: Parent = None,
) -> None:
    """Run the controller, on the cores of this machine or on pools in a cloud.

    Jobs keep training when the controller stops.
    """
    from autoscaler.cli.own_log import log_to_stderr
    from autoscaler.cli.serving import serve_settings, warn_without_torch
    from autoscaler.main import serve as run
    from autoscaler.wire.connection import state_directory

    log_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = serve_settings(
        state or state_directory(),
        devices=devices,
        boot_seconds=boot_seconds,
        reclaims_per_hour=reclaims_per_hour,
        fleet_usd_per_hour=fleet_usd_per_hour,
        fleet_usd=fleet_usd,
        job_usd=job_usd,
        study_usd=study_usd,
        checkpoint_seconds=checkpoint_seconds,
        lease=lease,
        observe=observe,
        fleet=fleet,
        pools=pools or (),
        secrets=secrets or (),
        secret_variables=secret_variables or "",
        store_url=store,
        host=host,
        port=port,
        policy=policy,
        engine=engine,
        parent=parent,
    )
    warn_without_torch(settings)
    run(settings)
