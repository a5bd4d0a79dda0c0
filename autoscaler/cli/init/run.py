"""Writing of a Terraform configuration from the answers to a few questions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import typer

from autoscaler.cli.init.configuration import TerraformConfiguration, rendered
from autoscaler.cli.live import print_whole
from autoscaler.cli.tables import words_table
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import GpuKind
from autoscaler.market.catalogue import InstanceType, catalogue
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.quantities import parse_money

_DEPLOYMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_REGIONS = {
    "aws": ("us-east-1", re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")),
    "gcp": ("us-central1", re.compile(r"[a-z]+-[a-z]+[0-9]+")),
}
_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_COUNT = re.compile(r"[1-9][0-9]{0,2}")
_CLONE = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers given as options; None for the others."""

    cloud: str
    deployment: str | None = None
    project: str | None = None
    region: str | None = None
    gpu: str | None = None
    max_instances: str | None = None
    fleet_usd: str | None = None
    module: str | None = None


def write_configuration(answers: Answers, directory: Path, asks: bool) -> None:
    """Write `main.tf` into a new directory, and print what it will create and the next steps.

    `asks`: ask on the terminal for answers that are missing; otherwise use the defaults.

    Raises:
        SpecError: an answer can't be used, or the directory has a configuration already.
    """
    file = directory / "main.tf"
    if file.exists():
        raise SpecError(f"{file} exists: name another directory, or edit that file", "DIRECTORY")
    configuration, types = _configuration(answers, asks)
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(rendered(configuration))
    (directory / ".gitignore").write_text(".terraform/\n*.tfstate*\ndist/\n")
    _print_summary(configuration, types, file)


def _configuration(
    answers: Answers, asks: bool
) -> tuple[TerraformConfiguration, Sequence[InstanceType]]:
    """Return the configuration, and the instance types of its pool."""
    project = _project(answers, asks)
    default_region, region_form = _REGIONS[answers.cloud]
    region = _answer("--region", "Region", answers.region, default_region, asks)
    _require(region, region_form, "--region", f"write it as {default_region}")
    name = _answer("--deployment", "Name of the deployment", answers.deployment, "prod", asks)
    _require(name, _DEPLOYMENT, "--deployment", "1 to 24 lower-case letters, digits and hyphens")
    gpu_text = _answer("--gpu", "GPUs, as L4:1 or H100:8", answers.gpu, "L4:1", asks)
    types = _types(answers.cloud, gpu_text)
    most = _answer("--max-instances", "Most instances", answers.max_instances, "4", asks)
    _require(most, _COUNT, "--max-instances", "write a number from 1 to 999")
    question = "Most US dollars for all jobs together, ever"
    fleet_usd = _answer("--fleet-usd", question, answers.fleet_usd, "500", asks)
    try:
        parse_money(fleet_usd)
    except ValueError as error:
        raise SpecError(str(error), "--fleet-usd") from error
    dearest_usd = max(known.price.usd_per_hour for known in types)
    configuration = TerraformConfiguration(
        cloud=answers.cloud,
        module=_module(answers),
        deployment=name,
        project=project,
        region=region,
        types=tuple(known.name for known in types),
        max_instances=int(most),
        max_usd_per_hour=math.ceil(dearest_usd * int(most)),
        fleet_usd=fleet_usd.removeprefix("$"),
    )
    return configuration, types


def _project(answers: Answers, asks: bool) -> str | None:
    if answers.cloud != "gcp":
        if answers.project is not None:
            raise SpecError("is for gcp only: leave it out", "--project")
        return None
    project = _answer("--project", "Id of the project", answers.project, None, asks)
    _require(project, _PROJECT, "--project", "write the id of a project, as my-project-1")
    return project


def _answer(option: str, question: str, given: str | None, default: str | None, asks: bool) -> str:
    """Return the answer: the given one, the one from the terminal, or the default."""
    if given is not None:
        return given
    if asks:
        return str(typer.prompt(question, default=default))
    if default is None:
        raise SpecError("is missing", option)
    return default


def _require(value: str, form: re.Pattern[str], option: str, way_out: str) -> None:
    if form.fullmatch(value) is None:
        raise SpecError(f'"{value}" can\'t be used: {way_out}', option)


def _types(cloud: str, text: str) -> tuple[InstanceType, ...]:
    """Return the instance types of a cloud with these GPUs, the cheapest first.

    Of a kind without a number, the types with one GPU are meant.

    Raises:
        SpecError: the text names no GPU, or the cloud's catalogue has no such type.
    """
    try:
        gpus = parse_gpus(text.split(","))
    except ValueError as error:
        raise SpecError(str(error), "--gpu") from error
    wanted = {(gpu.name, gpu.devices or 1) for gpu in gpus}
    of_cloud = [known for known in catalogue().values() if known.provider == cloud]
    types = [known for known in of_cloud if (known.device_kind, known.devices) in wanted]
    if not types:
        sold = sorted({str(GpuKind(known.device_kind, known.devices)) for known in of_cloud})
        raise SpecError(f"{cloud} has no type with {text}: write {', '.join(sold)}", "--gpu")
    return tuple(sorted(types, key=lambda known: known.price.usd_per_hour))


def _module(answers: Answers) -> str:
    """Return the source of the module: the given one, or that of this clone."""
    if answers.module is not None:
        return answers.module
    module = _CLONE / "terraform" / "modules" / answers.cloud
    if not (module / "pools.tf").exists():
        raise SpecError(
            "Castor runs from no clone: name the module, as a directory or a git:: address",
            "--module",
        )
    return str(module)


def _print_summary(
    configuration: TerraformConfiguration, types: Sequence[InstanceType], file: Path
) -> None:
    table = words_table("type", "GPUs", "$/h on demand", "of", right=("$/h on demand",))
    for known in types:
        gpus = str(GpuKind(known.device_kind, known.devices))
        price = known.price
        table.add_row(known.name, gpus, f"{price.usd_per_hour:.4g}", f"{known.region}")
    most_usd = Decimal(configuration.max_usd_per_hour)
    typer.echo(
        f"{file}: a controller, and a pool of at most {configuration.max_instances} instances, "
        f"${most_usd}/h and ${configuration.fleet_usd} in all:\n"
    )
    print_whole(table)
    directory = file.parent
    wheels = directory.resolve() / "dist"
    clone = _CLONE if (_CLONE / "pyproject.toml").exists() else "CLONE"
    typer.echo(
        "\nTerraform also creates a network, a bucket, a queue of notices, roles and a small "
        "instance for the controller, which cost money while no job runs, too.\n\nNext:\n"
        f"  make -C {clone} wheels WHEELS={wheels}    # what instances install\n"
        f"  terraform -chdir={directory} init && terraform -chdir={directory} apply\n"
        f'  castor check "$(terraform -chdir={directory} output -raw pools_source)"\n'
        f"  then access and the first job: docs/{configuration.cloud}.md"
    )
