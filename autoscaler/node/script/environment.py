"""Environment variables of processes on an instance."""

from __future__ import annotations

import math
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autoscaler.domain.training import (
    BATCH_LOG_VARIABLE,
    JOB_VARIABLE,
    SHARD_VARIABLE,
    SOCKET_VARIABLE,
)
from autoscaler.domain.trial import IMPORTS_VARIABLE
from autoscaler.node.instance import Instance
from autoscaler.wire.messages import Assignment
from providers.metadata import DEVICES_VARIABLE

# Variables that locate programs, packages and the network. Jobs see no others of the agent.
_INHERITED: Final = {
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
}
_INHERITED_PREFIXES: Final = ("PIP_", "UV_")
_SHUTDOWN_VARIABLE: Final = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_DEFAULTS: Final = {
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "RUST_LOG": "error",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ`, the agent's environment, that processes inherit."""
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }


def job_environment(
    instance: Instance, assignment: Assignment, devices_used: int
) -> dict[str, str]:
    """Return the variables of a job's script and set-up, besides the inherited and secret ones.

    The job may not set variables named CASTOR_..., except the one for the log of batches.
    """
    devices = instance.metadata.devices[:devices_used]
    numbers = ",".join(str(device) for device in devices)
    user, study = f"castor-{assignment.job_number}", assignment.spec.study
    parallelism = assignment.spec.parallelism
    tells_shard = parallelism.shard > 1 or parallelism.has_chosen_shard
    return {
        **_DEFAULTS,
        **({} if assignment.offer.is_cpu else {"CUDA_VISIBLE_DEVICES": numbers}),
        "HOME": str(instance.disk.home),
        "USER": user,
        "LOGNAME": user,
        **_without_reserved(assignment.spec.environment),
        **instance.metadata.environment(),
        DEVICES_VARIABLE: numbers,
        JOB_VARIABLE: assignment.job,
        SOCKET_VARIABLE: str(instance.disk.socket()),
        **({SHARD_VARIABLE: str(parallelism.shard)} if tells_shard else {}),
        **({} if study is None else {IMPORTS_VARIABLE: str(instance.disk.home / "imports")}),
        **_shutdown_limit(assignment),
    }


def _shutdown_limit(assignment: Assignment) -> dict[str, str]:
    """Return the variable by which torchrun gives the ranks of a command its whole grace."""
    restart = assignment.spec.restart
    return {} if restart is None else {_SHUTDOWN_VARIABLE: f"{math.ceil(restart.grace_seconds)}"}


def secret_environment(assignment: Assignment) -> dict[str, str]:
    """Return the secrets of a job as variables; names are limited as in `job_environment`."""
    return _without_reserved(assignment.secrets)


def outside_image(instance: Instance, variables: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the environment of a process outside containers, with `python` first in PATH."""
    merged = {**instance.environment, **variables}
    first = str(Path(python).parent)
    merged["PATH"] = ":".join(part for part in (first, merged.get("PATH")) if part)
    return merged


def packages() -> tuple[Path, ...]:
    """Return the package directories of this interpreter, with Castor and usually torch."""
    site_directories = {
        Path(directory).resolve()
        for directory in (*site.getsitepackages(), site.getusersitepackages())
    }
    return tuple(Path(part) for part in sys.path if Path(part).resolve() in site_directories)


def _without_reserved(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if name == BATCH_LOG_VARIABLE or not name.startswith("CASTOR_")
    }
