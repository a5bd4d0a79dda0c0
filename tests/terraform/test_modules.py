"""Rules for the modules of every cloud that need no Terraform."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.terraform.conftest import GCP_MODULE, MODULE

MODULES = [MODULE, GCP_MODULE]
BLOCK = re.compile(
    r'^(variable|output) "(\w+)" \{\n(?:.*\n)*?  description = "(.*)"$', re.MULTILINE
)
REQUIRED = {
    "aws": {"deployment", "pools", "max_usd_per_hour", "fleet_usd"},
    "gcp": {"deployment", "pools", "max_usd_per_hour", "fleet_usd", "project", "region", "zones"},
}
EC2_STEPS = MODULE.parents[2] / "docs" / "aws.md"
API_PORT = 8470
SHARED_FILES = (
    "variables_common.tf",
    *("files/agent.sh", "files/datasets.sh", "files/first_boot.sh", "files/retry.sh"),
)


def text_of(module: Path, name: str) -> str:
    """Return the text of all files that hold the module's variables or outputs."""
    return "\n".join(path.read_text() for path in sorted(module.glob(f"{name}*.tf")))


def variables_in(text: str) -> dict[str, str]:
    """Return the block of each variable by name."""
    blocks = re.findall(r'^variable "\w+" \{\n.*?^\}$', text, re.MULTILINE | re.DOTALL)
    return {block.split('"')[1]: block for block in blocks}


def argument(block: str, name: str) -> str:
    """Return the first line of an argument of a variable; empty if it is not set."""
    found = re.search(rf"^  {name}\s+= (.*)$", block, re.MULTILINE)
    return "" if found is None else found[1]


def sub_modules_of(module: Path) -> list[dict[str, str]]:
    """Return the variables of each sub-module."""
    paths = sorted(module.glob("modules/*/variables.tf"))
    return [variables_in(path.read_text()) for path in paths]


def form_of(block: str) -> str:
    """Return the type and the default of a variable, as they are written."""
    text = re.sub(r"\n\n  validation \{\n.*?^  \}", "", block, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^variable .*\n|^  description = .*\n|^  nullable .*\n", "", text, flags=re.M)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_variable_and_output_is_in_the_readme(module: Path) -> None:
    readme = (module / "README.md").read_text()
    for name in ("variables", "outputs"):
        text = text_of(module, name)
        blocks = BLOCK.findall(text)
        assert len(blocks) == len(re.findall(r"^(?:variable|output) ", text, re.MULTILINE))
        for _, block, description in blocks:
            told = description.replace('\\"', '"')
            row = rf"^\| {block} \| {re.escape(told)} \|"
            assert re.search(row, readme, re.MULTILINE), f"{block}: not in README.md as it is"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_table_of_inputs_has_types_and_defaults(module: Path) -> None:
    table = (module / "README.md").read_text().partition("## Inputs")[2].partition("## ")[0]
    rows = re.findall(r"^\| (\w+) \| .* \| `(.+?)` \| (.*?) \| (yes|no) \|$", table, re.MULTILINE)
    blocks = variables_in(text_of(module, "variables"))
    expected = {}
    for name, block in blocks.items():
        form = (
            argument(block, "type").replace("(object({", "(object)").replace("object({", "object")
        )
        default = argument(block, "default")
        expected[name] = [form, f"`{default}`" if default else "", "no" if default else "yes"]
    assert {name: columns for name, *columns in rows} == expected


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_variable_has_a_type_and_a_check(module: Path) -> None:
    blocks = variables_in(text_of(module, "variables"))
    for name, block in blocks.items():
        assert argument(block, "type"), name
        is_free = argument(block, "type") == "bool" or name == "prices_from"
        checks = [block, *(own[name] for own in sub_modules_of(module) if name in own)]
        assert is_free or any("  validation {" in text for text in checks), name
    required = {name for name, block in blocks.items() if not argument(block, "default")}
    assert required == REQUIRED[module.name]


def test_variables_of_sub_modules_are_those_of_the_module() -> None:
    """A sub-module checks each of its variables; the module only hands it on."""
    of_module = variables_in(text_of(MODULE, "variables"))
    found = sub_modules_of(MODULE)
    readmes = sorted(MODULE.glob("modules/*/README.md"))  # a registry hides those without
    assert len(found) == len(readmes) == 4
    for variables in found:
        for name in variables.keys() & of_module.keys():
            assert form_of(variables[name]) == form_of(of_module[name]), name
        assert all('  description = "' in block for block in variables.values())


def test_what_modules_share_is_the_same_in_each() -> None:
    """A copy in each, since a module has to work where it is the only one that was copied."""
    for name in SHARED_FILES:
        original = (MODULE / name).read_text()
        for module in MODULES:
            assert (module / name).read_text() == original, f"{name}: run make terraform-copies"


def test_the_range_of_googles_provider_spans_two_majors_everywhere() -> None:
    """One configuration has one version, which other modules bound, too."""
    paths = [GCP_MODULE / "versions.tf", *sorted(GCP_MODULE.glob("examples/*/main.tf"))]
    ranges = {
        re.findall(r'source  = "hashicorp/google"\n\s+version = "(.*)"', path.read_text())[0]
        for path in paths
    }
    assert ranges == {">= 6.50, < 8"}
    assert "| hashicorp/google | >= 6.50, < 8 |" in (GCP_MODULE / "README.md").read_text()


def test_machine_series_are_the_same_for_the_module_and_the_provider() -> None:
    name = "machine_series.json"
    provider = GCP_MODULE.parents[2] / "providers" / "gcp" / name
    assert (GCP_MODULE / "files" / name).read_text() == provider.read_text()


def test_no_equal_variable_is_written_in_each_module() -> None:
    texts = [(module / "variables.tf").read_text() for module in MODULES]
    of_aws, of_gcp = (variables_in(text).items() for text in texts)
    assert of_aws & of_gcp == set(), "move these into variables_common.tf"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_hosts_options_come_from_variables_and_so_survive_a_new_host(module: Path) -> None:
    host = (module / "controller.tf").read_text()
    for name in ("fleet_usd", "job_usd", "study_usd", "lease", "policy"):
        assert f"--{name.replace('_', '-')} ${{var.{name}}}" in host, name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_programs_are_programs(module: Path) -> None:
    for path in sorted((module / "files").glob("*.sh")):
        subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_jobs_reach_no_metadata_service(module: Path) -> None:
    agent = (module / "files" / "agent.sh").read_text()
    denied = re.search(r"^IPAddressDeny=(.*)$", agent, re.MULTILINE)
    assert denied is not None
    ec2, gce = {"169.254.169.254/32", "fd00:ec2::254/128"}, {"fd20:ce::254/128"}
    assert set(denied[1].split()) == ec2 | gce
    rule = agent.partition("table inet castor {")[2].partition("\nTABLE")[0]
    refused = re.findall(r"ip6? daddr (?:\{ )?([^{}]*?)(?: \})? (?:jump|reject)", rule)
    hosts = {one.partition("/")[0] for one in ec2 | gce}
    assert [part for one in refused for part in one.split(", ")].count("169.254.169.254") == 2
    assert {part for one in refused for part in one.split(", ")} == hosts


def blocks_in(text: str, beginning: str) -> list[str]:
    """Return the blocks that begin with a pattern, each up to the brace at its own indentation."""
    pattern = rf"^( *){beginning} \{{\n.*?^\1\}}$"
    return [match[0] for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)]


def test_only_instances_reach_instances_on_ec2() -> None:
    text = "\n".join(path.read_text() for path in sorted(MODULE.rglob("*.tf")))
    rules = blocks_in(text, r'resource "aws_vpc_security_group_ingress_rule" "\w+"')
    assert len(rules) >= 4
    assert not blocks_in(text, r'resource "aws_security_group_rule" "\w+"')
    assert not blocks_in(text, r"(?:ingress|egress)"), "rules within a group are overlooked here"
    into_instances = [
        rule for rule in rules if argument(rule, "security_group_id").endswith("nodes")
    ]
    assert [argument(rule, "referenced_security_group_id") for rule in into_instances] == [
        "local.groups.nodes"
    ]
    assert not argument(into_instances[0], "cidr_ipv4")


def test_only_instances_reach_instances_on_compute_engine() -> None:
    text = (GCP_MODULE / "firewall.tf").read_text()
    ways_in = text.split("ways_in = ")[1].split("ways_out = ")[0]
    rules = blocks_in(ways_in, r"[\w-]+ =")
    into_instances = [rule for rule in rules if "target      = local.node_account" in rule]
    training, shells = into_instances
    assert "accounts    = [local.node_account]" in training and "cidrs       = null" in training
    # Shells that the user asked for come through the proxy, which knows who asks, to one port.
    assert 'cidrs       = ["35.235.240.0/20"]' in shells and 'ports       = ["22"]' in shells
    assert "var.instance_shell ?" in ways_in
    (otherwise,) = blocks_in(text, r'resource "google_compute_firewall" "otherwise"')
    assert "local.node_account" in otherwise and 'protocol = "all"' in otherwise
    assert "deny {" in otherwise


def test_the_steps_on_ec2_use_outputs_of_the_example() -> None:
    steps = EC2_STEPS.read_text().partition("## Five steps")[2].partition("\n## ")[0]
    example = (MODULE / "examples" / "minimal" / "main.tf").read_text()
    used = set(re.findall(r"terraform output -raw (\w+)", steps))
    assert used == {"controller_instance_id", "controller_host", "pools_source"}
    assert used <= set(re.findall(r'^output "(\w+)"', example, re.MULTILINE))
    assert re.findall(r"host=\$\(terraform output -raw (\w+)\)", steps) == ["controller_host"]
    assert f"portNumber={API_PORT}," in steps


def test_the_steps_on_ec2_set_every_variable_that_the_example_requires() -> None:
    steps = EC2_STEPS.read_text().partition("## Five steps")[2].partition("\n## ")[0]
    example = (MODULE / "examples" / "minimal" / "main.tf").read_text()
    variables = variables_in(example)
    required = {name for name, block in variables.items() if not argument(block, "default")}
    assert required == {"image_id", "wheels_directory"}, "AWS's own image is without Castor"
    (settings,) = re.findall(r"^2\. (.*?)^3\. ", steps, re.MULTILINE | re.DOTALL)
    assert required <= set(re.findall(r"`(\w+)`", settings))


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_the_steps_pin_the_packages_of_instances(name: str) -> None:
    steps = (EC2_STEPS.parent / f"{name}.md").read_text().partition("## Five steps")[2]
    assert f'pip install -e ".[server,{name}]" && make wheels' in steps.partition("\n2. ")[0]
