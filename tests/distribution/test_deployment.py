"""Deployments of the controller: image, Compose file, Helm chart and systemd unit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import pytest
import yaml
from typer.main import get_command

from autoscaler.cli.app import app

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "examples" / "deployment"
DOCKER, COMPOSE = DEPLOYMENT / "docker", DEPLOYMENT / "compose"
CHART, UNIT = DEPLOYMENT / "helm" / "castor", DEPLOYMENT / "systemd" / "castor.service"
SCHEMAS = Path(__file__).parent / "schemas"
SERVE = get_command(app).commands["serve"]  # type: ignore[attr-defined]
OPTIONS = {option for parameter in SERVE.params for option in parameter.opts}


def is_serve(words: list[str]) -> bool:
    """Return whether words are a command line of `castor serve` with options that exist."""
    used = {word for word in words[1:] if word.startswith("--")}
    return words[0] == "serve" and used <= OPTIONS


# The image


def dockerfile() -> str:
    return re.sub(r"\\\n *", "", (DOCKER / "Dockerfile").read_text())


def test_the_dockerfile_has_no_finding() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [str(hadolint), "--failure-threshold", "style", str(DOCKER / "Dockerfile")]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert (completed.returncode, completed.stdout) == (0, "")


def test_the_image_runs_as_a_user_without_rights_and_has_a_health_check() -> None:
    last = dockerfile().rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.M)
    assert re.search(r'^HEALTHCHECK .*CMD \["python", "/opt/castor/health.py"\]$', last, re.M)
    assert re.search(r'^ENTRYPOINT \["castor"\]$', last, re.M)
    (command,) = re.findall(r"^CMD (\[.*\])$", last, re.M)
    assert is_serve(json.loads(command))


def test_the_image_is_built_from_files_of_the_repository_that_docker_is_sent() -> None:
    sent = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile(), re.M):
        for source in line.split():
            assert (ROOT / source).exists()
            allowed = [name[1:] for name in sent if name.startswith("!")]
            assert any(source == name or source.startswith(f"{name}/") for name in allowed)


def pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the version and hashes of each package of a list."""
    text = path.read_text().replace("\\\n", " ")
    rows = re.findall(r"^([a-z0-9._-]+)==(\S+)([^\n]*)$", text, re.M)
    return {
        name: (version, frozenset(re.findall(r"sha256:[0-9a-f]{64}", rest)))
        for name, version, rest in rows
    }


def test_the_image_has_the_locked_versions_with_their_hashes() -> None:
    locked, of_image = pins(ROOT / "requirements.lock"), pins(DOCKER / "requirements.txt")
    assert {"fastapi", "psycopg", "boto3", "google-cloud-compute", "setuptools"} <= set(of_image)
    assert not {"torch", "pytest", "optuna"} & set(of_image)
    for name, (version, hashes) in of_image.items():
        assert hashes, name
        if name in locked:
            assert (version, hashes) == locked[name], name


@contextmanager
def controller(state: Path) -> Iterator[None]:
    """Run `castor serve` as the image does, on a free port of this host, until the block ends."""
    options = ("--state", str(state), "--host", "0.0.0.0", "--tls-cert", "auto", "--port", "0")
    command = [sys.executable, "-m", "autoscaler.cli.app", "serve", *options, "--devices", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert any("listening on" in line for line in process.stderr)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def health(state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCKER / "health.py")]
    environment = os.environ | {"CASTOR_STATE": str(state)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_health_check_says_whether_the_controller_lives(tmp_path: Path) -> None:
    assert health(tmp_path).returncode == 1
    with controller(tmp_path):
        assert (health(tmp_path).returncode, health(tmp_path).stderr) == (0, "")
    ended = health(tmp_path)
    assert ended.returncode == 1
    assert "no healthy controller" in ended.stderr


# Compose


def compose_files() -> dict[str, Any]:
    return {path.name: yaml.safe_load(path.read_text()) for path in COMPOSE.glob("*.yaml")}


def test_compose_files_are_valid() -> None:
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert set(compose_files()) == {"compose.yaml", "cloud.yaml"}
    for document in compose_files().values():
        assert [error.message for error in validator.iter_errors(document)] == []
    broken = {"services": {"controller": {"comand": []}}}
    assert list(validator.iter_errors(broken))


def test_services_of_compose_serve_with_few_rights_and_no_password_in_the_files() -> None:
    for name, document in compose_files().items():
        service = document["services"]["controller"]
        assert is_serve(service["command"]), name
    files = compose_files()
    controller = files["compose.yaml"]["services"]["controller"]
    assert controller["read_only"] and controller["cap_drop"] == ["ALL"]
    assert controller["build"]["dockerfile"] == "examples/deployment/docker/Dockerfile"
    assert (COMPOSE / controller["build"]["context"]).resolve() == ROOT
    database = files["compose.yaml"]["services"]["database"]
    assert database["ports"] == ["127.0.0.1:5432:5432"]
    assert database["environment"]["POSTGRES_PASSWORD"].startswith("${CASTOR_DB_PASSWORD:?")


# Helm

POOLS = {"pools": ["ssm:/castor/prod/pools"], "fleetUsd": 1_000_000, "publicUrl": "https://c:8470"}
STORE = {"url": "postgresql://castor@db:5432/castor", "passwordSecret": {"name": "db"}}
SEVERAL = {
    **POOLS,
    "replicas": 2,
    "store": STORE,
    "identity": {"existingSecret": "castor-identity"},
    "tls": {"existingSecret": "castor-tls"},
    "podDisruptionBudget": {"enabled": True},
}
CASES: dict[str, dict[str, Any]] = {
    "alone": {},
    "pools": POOLS,
    "several": SEVERAL,
    "files": {
        "poolFiles": {"prod.json": "{}"},
        "fleetUsd": "500",
        "publicUrl": "https://castor.example.org",
        "persistence": {"existingClaim": "state"},
        "hostNetwork": True,
        "extraArgs": ["--lease", "1h"],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/c"}},
        "tls": {"existingSecret": "castor-tls", "hasAuthority": False},
    },
}


def manifests(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rendered objects of the chart by kind."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values=values, name="prod", namespace="ml")
    files = [text for name, text in texts.items() if name.endswith(".yaml")]
    objects = [part for text in files for part in yaml.safe_load_all(text) if part]
    assert len({part["kind"] for part in objects}) == len(objects)
    return {part["kind"]: part for part in objects}


def pod(values: dict[str, Any]) -> dict[str, Any]:
    specification: dict[str, Any] = manifests(values)["Deployment"]["spec"]["template"]["spec"]
    return specification


def arguments(values: dict[str, Any]) -> list[str]:
    words: list[str] = pod(values)["containers"][0]["args"]
    return words


@pytest.mark.parametrize("case", CASES)
def test_the_chart_has_no_finding(case: str) -> None:
    report = helm.lint(CHART, CASES[case], strict=True)
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_the_chart_has_the_version_of_castor() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert [chart["version"], chart["appVersion"]] == version * 2


@pytest.mark.parametrize("case", CASES)
def test_pods_have_few_rights_limits_and_probes(case: str) -> None:
    specification = pod(CASES[case])
    assert specification["securityContext"]["runAsNonRoot"] is True
    assert specification["automountServiceAccountToken"] is False
    for container in specification["containers"] + specification.get("initContainers", []):
        assert container["image"] == "castor:0.1.0"
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
    (main,) = specification["containers"]
    paths = {name: main[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")}
    assert paths == {"liveness": "/livez", "readiness": "/readyz"}
    mounted = {mount["name"] for mount in main["volumeMounts"]}
    assert mounted <= {volume["name"] for volume in specification["volumes"]}


@pytest.mark.parametrize("case", CASES)
def test_the_command_of_a_pod_exists(case: str) -> None:
    assert is_serve(arguments(CASES[case]))
    assert manifests(CASES[case])["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_one_controller_keeps_its_state_on_a_volume() -> None:
    objects = manifests({})
    claim = objects["PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    volumes = {volume["name"]: volume for volume in pod({})["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert "--store" not in arguments({})
    assert "PodDisruptionBudget" not in objects


def test_several_controllers_share_store_identity_and_certificate() -> None:
    objects = manifests(SEVERAL)
    assert "PersistentVolumeClaim" not in objects
    assert objects["PodDisruptionBudget"]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    words = arguments(SEVERAL)
    assert "--follow" in words
    assert words[words.index("--store") + 1] == STORE["url"]
    assert words[words.index("--fleet-usd") + 1] == "1000000.00"
    (password,) = [
        part
        for part in pod(SEVERAL)["containers"][0]["env"]
        if "secretKeyRef" in part["valueFrom"]
    ]
    assert password["name"] == "PGPASSWORD"
    assert password["valueFrom"]["secretKeyRef"] == {"name": "db", "key": "password"}


def test_files_of_pools_are_mounted_and_opened() -> None:
    values = CASES["files"]
    assert manifests(values)["ConfigMap"]["data"] == {"prod.json": "{}"}
    words = arguments(values)
    assert words[words.index("--pools") + 1] == "/etc/castor/pools/prod.json"
    assert words[-2:] == ["--lease", "1h"]
    assert "--tls-ca" not in words
    assert pod(values)["hostNetwork"] is True


def test_the_service_leads_to_the_pods() -> None:
    objects = manifests({})
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = objects["Service"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == "https"
    words = arguments({})
    name = objects["Service"]["metadata"]["name"]
    assert words[words.index("--public-url") + 1] == f"https://{name}.ml.svc:8470"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"pools": ["/etc/pools.toml"], "publicUrl": "https://c"}, "fleetUsd"),
        ({"pools": ["/etc/pools.toml"], "fleetUsd": 5}, "publicUrl"),
        ({**POOLS, "publicUrl": "http://c:8470"}, "publicUrl"),
        ({**SEVERAL, "store": {}}, "store.url"),
        ({**SEVERAL, "identity": {}}, "identity.existingSecret"),
        ({**SEVERAL, "tls": {}}, "tls.existingSecret"),
        ({"store": {"url": "postgresql://castor:secret@db/castor"}}, "url"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(named)):
        manifests(values)


# systemd


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The command of the unit is not installed here: one that exists takes its place.
    unit = tmp_path / "castor.service"
    unit.write_text(UNIT.read_text().replace("/opt/castor/bin/castor", sys.executable))
    completed = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")


def test_the_unit_agrees_with_that_of_the_terraform_modules() -> None:
    """Both end only the main process, and restart a loop that hangs."""
    lines = set(UNIT.read_text().splitlines())
    script = (ROOT / "terraform/modules/aws/files/controller.sh").read_text()
    _, _, of_terraform = script.partition("[Service]")
    shared = {
        line
        for line in of_terraform.partition("\nEND")[0].splitlines()
        if "=" in line and not line.startswith(("#", "Exec", "Environment=", "ReadWritePaths="))
    }
    assert shared - lines == set()
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    assert is_serve(command.removeprefix("ExecStart=/opt/castor/bin/castor ").split())
