"""Answers to the questions of `castor init`, each checked as it is given."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import typer

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import GpuKind
from autoscaler.market.catalogue import InstanceType, catalogue
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.quantities import parse_money

Value = TypeVar("Value")

DEFAULT_REGIONS: Final = {"aws": "us-east-1", "gcp": "us-central1"}
_REGIONS: Final = {"aws": r"[a-z]{2}(-[a-z]+)+-[0-9]", "gcp": r"[a-z]+-[a-z]+[0-9]+"}
# As the modules have them: names and labels contain the deployment.
_DEPLOYMENTS: Final = {
    "aws": (r"[a-z0-9][a-z0-9-]{0,23}", "1 to 24 lower-case letters, digits and hyphens"),
    "gcp": (r"[a-z][a-z0-9]{0,11}", "1 to 12 lower-case letters and digits, a letter first"),
}
_PROJECT: Final = r"[a-z][a-z0-9-]{4,28}[a-z0-9]"
_COUNT: Final = r"[1-9][0-9]{0,2}"
_UNLIMITED: Final = "none"
_CLONE: Final = Path(__file__).parents[3]
# Parts of addresses that Terraform does not take for names in its public registry.
_ADDRESS_PARTS: Final = ("::", "://", "git@")


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


def answer(
    option: str,
    question: str,
    given: str | None,
    default: str | None,
    check: Callable[[str], Value],
    asks: bool,
) -> Value:
    """Return the checked answer: the given one, the one from the terminal, or the default.

    On the terminal a wrong answer is refused with the reason, and asked for again.

    Raises:
        SpecError: the given answer can't be used, or is missing; the error names the option.
    """
    if given is None and asks:
        while True:
            text = str(typer.prompt(question, default=default))
            try:
                return _checked(option, text, check)
            except SpecError as error:
                print(error, file=sys.stderr)
    if given is None and default is None:
        raise SpecError(f"is missing: {question}", option)
    return _checked(option, given if given is not None else str(default), check)


def _checked(option: str, text: str, check: Callable[[str], Value]) -> Value:
    try:
        return check(text.strip())
    except ValueError as error:
        raise SpecError(str(error), option) from error


def _of_form(form: str, way_out: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if re.fullmatch(form, text) is None:
            raise ValueError(f'"{text}" can\'t be used: {way_out}')
        return text

    return check


def region_check(cloud: str) -> Callable[[str], str]:
    """Return the check of a region's name."""
    way_out = f"write one region, as {DEFAULT_REGIONS[cloud]}, and no zone"
    return _of_form(_REGIONS[cloud], f"{way_out}; docs/{cloud}.md says how to add regions")


def deployment_check(cloud: str) -> Callable[[str], str]:
    """Return the check of a deployment's name."""
    return _of_form(*_DEPLOYMENTS[cloud])


def check_project(text: str) -> str:
    """Return the id of a project of Google Cloud."""
    form = "6 to 30 lower-case letters, digits and hyphens"
    return _of_form(_PROJECT, f"write the id of a project, as my-project-1: {form}")(text)


def check_count(text: str) -> int:
    """Return a number of instances."""
    return int(_of_form(_COUNT, "write a number from 1 to 999")(text))


def check_fleet_usd(text: str) -> str:
    """Return a budget in US dollars, without the sign; "none" for no budget."""
    if text != _UNLIMITED:
        try:
            parse_money(text)
        except ValueError as error:
            raise ValueError(f"{error}, or none for no limit") from error
    return text.removeprefix("$")


def gpu_check(cloud: str) -> Callable[[str], tuple[InstanceType, ...]]:
    """Return the check of GPUs, which returns a cloud's instance types, the cheapest first.

    Of a kind without a number the types with the fewest GPUs are meant.
    """
    of_cloud = [known for known in catalogue().values() if known.provider == cloud]
    sold = ", ".join(sorted({known.device_kind for known in of_cloud}))

    def types_of(text: str) -> list[InstanceType]:
        types: list[InstanceType] = []
        counts: set[int] = set()
        for gpu in parse_gpus([text]):
            of_kind = [known for known in of_cloud if known.device_kind == gpu.name]
            counts |= {known.devices for known in of_kind}
            fewest = min((known.devices for known in of_kind), default=0)
            wanted = gpu.devices or fewest
            types += [known for known in of_kind if known.devices == wanted]
        if not types and counts:
            numbers = ", ".join(str(GpuKind(text.partition(":")[0], n)) for n in sorted(counts))
            raise ValueError(f"{cloud} has no type with {text}: write {numbers}")
        if not types:
            raise ValueError(f"{cloud} has no type with {text}: it has {sold}")
        return types

    def check(text: str) -> tuple[InstanceType, ...]:
        by_name = {
            known.name: known for part in text.split(",") for known in types_of(part.strip())
        }
        return tuple(sorted(by_name.values(), key=lambda known: known.price.usd_per_hour))

    return check


def module_source(cloud: str, given: str | None) -> str:
    """Return the source of the Terraform module: an address, or the absolute path of a directory.

    Without `given`, the module of the clone that Castor runs from, or that this directory is in.

    Raises:
        SpecError: the directory is missing, or is no module of this cloud.
    """
    if given is not None and any(part in given for part in _ADDRESS_PARTS):
        return given
    if given is not None:
        return str(_require_module(Path(given), cloud))
    here = Path.cwd()
    for clone in (_CLONE, here, *here.parents):
        module = clone / "terraform" / "modules" / cloud
        if module.is_dir():
            return str(_require_module(module, cloud))
    raise SpecError(
        f"no clone of Castor is here: name its directory terraform/modules/{cloud}, or a git:: "
        "address of it",
        "--module",
    )


def _require_module(path: Path, cloud: str) -> Path:
    versions = path / "versions.tf"
    provider = {"aws": "hashicorp/aws", "gcp": "hashicorp/google"}[cloud]
    if not versions.is_file() or provider not in versions.read_text():
        raise SpecError(
            f"{path} is not Castor's module of {cloud}: name its directory, or write an address "
            "with ::, as git::https://...",
            "--module",
        )
    return path.resolve()
