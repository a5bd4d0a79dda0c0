"""Writing of a Terraform configuration from the answers to a few questions."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

import typer

from autoscaler.cli.init.answers import (
    DEFAULT_REGIONS,
    Answers,
    answer,
    check_count,
    check_fleet_usd,
    check_project,
    deployment_check,
    gpu_check,
    module_source,
    region_check,
)
from autoscaler.cli.init.configuration import TerraformConfiguration, rendered
from autoscaler.cli.live import print_whole
from autoscaler.cli.tables import words_table
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import GpuKind
from autoscaler.market.catalogue import InstanceType

_IGNORED: Final = (".terraform/", "*.tfstate*", "dist/")
# The limit is above the price of all instances: of disks and addresses, and of other regions.
_MARGIN: Final = Decimal("1.25")
_WIDTH: Final = 80


def write_configuration(answers: Answers, directory: Path, asks: bool) -> None:
    """Write `main.tf` into a directory, and print what it will create and the next steps.

    `asks`: ask on the terminal for answers that are missing; otherwise use the defaults.

    Raises:
        SpecError: an answer can't be used, or the directory can't, or has a configuration already.
    """
    file = directory / "main.tf"
    if directory.exists() and not directory.is_dir():
        raise SpecError(f"{directory} is not a directory: name another", "DIRECTORY")
    if file.exists():
        raise SpecError(f"{file} exists: name another directory, or edit that file", "DIRECTORY")
    configuration, types = _configuration(answers, asks)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(rendered(configuration))
        _ignore(directory / ".gitignore")
    except OSError as error:
        raise SpecError(f"{directory} can't be written: {error.strerror}", "DIRECTORY") from error
    _print_summary(configuration, types, file)


def _configuration(
    answers: Answers, asks: bool
) -> tuple[TerraformConfiguration, Sequence[InstanceType]]:
    """Return the configuration, and the instance types of its pool."""
    cloud = answers.cloud
    module = module_source(cloud, answers.module)
    if cloud != "gcp" and answers.project is not None:
        raise SpecError("is for gcp only: leave it out", "--project")
    project = None
    if cloud == "gcp":
        question = "Id of the project, as my-project-1"
        project = answer("--project", question, answers.project, None, check_project, asks)
    region = answer(
        *("--region", "Region", answers.region, DEFAULT_REGIONS[cloud], region_check(cloud)),
        asks,
    )
    name = answer(
        *("--deployment", "Name of the deployment", answers.deployment, "prod"),
        *(deployment_check(cloud), asks),
    )
    question = "GPUs, by kind and number on an instance, as L4 or A100:8"
    types = answer("--gpu", question, answers.gpu, "L4", gpu_check(cloud), asks)
    most = answer(
        *("--max-instances", "Most instances at once", answers.max_instances, "4"),
        *(check_count, asks),
    )
    question = "Most US dollars that all jobs together may ever cost, or none"
    fleet_usd = answer("--fleet-usd", question, answers.fleet_usd, "500", check_fleet_usd, asks)
    dearest_usd = max(known.price.usd_per_hour for known in types)
    configuration = TerraformConfiguration(
        cloud=cloud,
        module=module,
        deployment=name,
        project=project,
        region=region,
        types=tuple(known.name for known in types),
        max_instances=most,
        max_usd_per_hour=math.ceil(dearest_usd * most * _MARGIN),
        fleet_usd=fleet_usd,
    )
    return configuration, types


def _ignore(file: Path) -> None:
    """Add the names that belong in no repository to a file of ignored names."""
    lines = file.read_text().splitlines() if file.exists() else []
    missing = [name for name in _IGNORED if name not in lines]
    if missing:
        file.write_text("\n".join([*lines, *missing]) + "\n")


def _print_summary(
    configuration: TerraformConfiguration, types: Sequence[InstanceType], file: Path
) -> None:
    table = words_table("type", "GPUs", "$/h on demand", "price of", right=("$/h on demand",))
    for known in types:
        gpus = str(GpuKind(known.device_kind, known.devices))
        table.add_row(known.name, gpus, f"{known.price.usd_per_hour:.4g}", known.region)
    total = configuration.fleet_usd
    total_text = "without a budget" if total == "none" else f"for ${total} in all"
    _print_wrapped(
        f"{file}: a controller, and a pool of at most {configuration.max_instances} instances for "
        f"at most ${configuration.max_usd_per_hour}/h, {total_text}."
    )
    typer.echo()
    print_whole(table)
    typer.echo()
    if any(known.region != configuration.region for known in types):
        _print_wrapped(
            f"Prices in {configuration.region} differ, and the region may lack some types: "
            "castor check reports both."
        )
    _print_wrapped(
        "Terraform also creates a network, a bucket, a queue of notices, roles and a small "
        "instance for the controller, which cost money while no job runs, too."
    )
    typer.echo("\n".join(["\nNext:", *_next_steps(configuration, file.parent)]))


def _next_steps(configuration: TerraformConfiguration, directory: Path) -> list[str]:
    module = Path(configuration.module)
    clone = str(module.parents[2]) if module.is_dir() else "CLONE"
    make = f"make -C {shlex.quote(clone)}"
    wheels = shlex.quote(str((directory / "dist").absolute()))
    is_aws = configuration.cloud == "aws"
    region = f"AWS_REGION={configuration.region} " if is_aws else ""
    return [
        f"  {make} wheels WHEELS={wheels}",
        f"  cd {shlex.quote(str(directory))}",
        "  terraform init && terraform apply",
        f'  {region}castor check "$(terraform output -raw pools_source)"',
        f"  then access and the first job: docs/{configuration.cloud}.md",
    ]


def _print_wrapped(text: str) -> None:
    typer.echo(textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
