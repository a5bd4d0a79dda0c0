"""Options of `castor init`. The command imports `run` when called."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import words_of


class CloudName(StrEnum):
    """Cloud for which a Terraform module exists."""

    AWS = "aws"
    GCP = "gcp"


Cloud = Annotated[CloudName, Argument(help="Cloud of the new deployment.", **words_of(CloudName))]
Directory = Annotated[Path, Argument(help="Directory of the Terraform configuration.")]
Deployment = Annotated[
    str | None, Option(help="Name of the deployment, in names and tags. Default: prod.")
]
Project = Annotated[str | None, Option(help="Id of the project; for gcp only.")]
Region = Annotated[str | None, Option(help="Default: us-east-1 or us-central1.")]
Gpu = Annotated[
    str | None,
    Option(
        help='GPUs, as "L4,H100:8": kinds, and their number on an instance; without a number, the '
        "fewest that are sold. Default: L4."
    ),
]
MaxInstances = Annotated[str | None, Option(help="Most instances at once. Default: 4.")]
FleetUsd = Annotated[
    str | None,
    Option(help="Most US dollars that all jobs together may ever cost, or none. Default: 500."),
]
Module = Annotated[
    str | None,
    Option(
        help="Terraform module: a directory, or an address with ::. Default: that of the clone "
        "that Castor runs from, or that this directory is in."
    ),
]


def init(
    cloud: Cloud,
    directory: Directory = Path("castor"),
    deployment: Deployment = None,
    project: Project = None,
    region: Region = None,
    gpu: Gpu = None,
    max_instances: MaxInstances = None,
    fleet_usd: FleetUsd = None,
    module: Module = None,
) -> None:
    """Write a Terraform configuration of a controller and a pool.

    The pool has GPU instances of one cloud. On a terminal the command asks for each option that is
    left out. It shows what Terraform will create and the hourly prices, and calls no cloud.
    """
    import sys

    from autoscaler.cli.init.answers import Answers
    from autoscaler.cli.init.run import write_configuration

    answers = Answers(
        cloud=cloud.value,
        deployment=deployment,
        project=project,
        region=region,
        gpu=gpu,
        max_instances=max_instances,
        fleet_usd=fleet_usd,
        module=module,
    )
    write_configuration(answers, directory, asks=sys.stdin.isatty())
