"""The words of `castor serve`; what it does with them is in `serving`, imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.domain.training import Engine

State = Annotated[Path | None, Option(envvar="CASTOR_STATE", help="Directory of all that lasts.")]
Store = Annotated[str | None, Option(help="Another store than SQLite there: postgresql://...")]
Host = Annotated[str, Option(help="Where to listen, and where instances find the controller.")]
Port = Annotated[int, Option(help="0 takes a free one.")]
Policy = Annotated[str, Option(help="Who plans.")]
FleetPrice = Annotated[float | None, Option(help="What all instances together may cost an hour.")]
FleetTotal = Annotated[
    str | None,
    Option(help="What all jobs together may ever cost: 500, or none. Required with --pools."),
]
JobTotal = Annotated[
    str | None,
    Option(help="Budget of jobs that name none: 50, or none. With --pools 50 unless given."),
]
StudyTotal = Annotated[
    str | None,
    Option(help="Budget of studies that name none: 200, or none. With --pools 200 unless given."),
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
    str | None, Option(help="Cores of this machine to sell, as 0,1,2; without --pools all.")
]
BootSeconds = Annotated[float, Option(help="Boot delay of local instances.")]
CheckpointSeconds = Annotated[float, Option(help="Between checkpoints, where a job does not say.")]
Lease = Annotated[str, Option(help="Instances that hear no controller for so long end.")]
Observe = Annotated[
    bool, Option("--observe", help="Plan, price and tell; buy and give back nothing.")
]
HowTrained = Annotated[
    Engine | None, Option(help="How instances train together; quorum where torchft is installed.")
]
Secrets = Annotated[
    list[Path] | None,
    Option(help="A directory whose files jobs may name as secrets; repeat it for more."),
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
    checkpoint_seconds: CheckpointSeconds = 300.0,
    lease: Lease = "30m",
    observe: Observe = False,
    engine: HowTrained = None,
    secrets: Secrets = None,
    secret_variables: SecretVariables = None,
    parent: Parent = None,
) -> None:
    """Run a controller: over this machine, or over pools in a cloud. Jobs go on without it."""
    from autoscaler.cli.own_log import log_to_stderr
    from autoscaler.cli.serving import serve_settings, warn_without_torch
    from autoscaler.main import serve as run
    from autoscaler.wire.connection import state_directory

    log_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = serve_settings(
        state or state_directory(),
        devices=devices,
        boot_seconds=boot_seconds,
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
