"""The environment variables of what runs on an instance."""

from __future__ import annotations

import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autoscaler.domain.training import BATCH_LOG_VARIABLE, JOB_VARIABLE, SOCKET_VARIABLE
from autoscaler.domain.trial import IMPORTS_VARIABLE
from autoscaler.node.instance import Instance
from autoscaler.wire.messages import Assignment
from providers.metadata import DEVICES_VARIABLE

# What finds programs, packages and the network. All else of the agent's stays with it.
_PASSED_ON: Final = {
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
}
_PASSED_ON_PREFIXES: Final = ("PIP_", "UV_")
_QUIET: Final = {
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "RUST_LOG": "error",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What `environ`, the agent's, passes on."""
    return {
        name: value
        for name, value in environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def job_environment(
    instance: Instance, assignment: Assignment, devices_used: int
) -> dict[str, str]:
    """What a job's script and set-up see beside the base and the secrets: its own and Castor's.

    The job may set anything but what is called CASTOR_, apart from the log of batches to repeat.
    """
    devices = instance.metadata.devices[:devices_used]
    numbers = ",".join(str(device) for device in devices)
    user, study = f"castor-{assignment.job_number}", assignment.spec.study
    return {
        **_QUIET,
        **({} if is_cpu(assignment) else {"CUDA_VISIBLE_DEVICES": numbers}),
        "HOME": str(instance.disk.home),
        "USER": user,
        "LOGNAME": user,
        **_without_castors(assignment.spec.environment),
        **instance.metadata.environment(),
        DEVICES_VARIABLE: numbers,
        JOB_VARIABLE: assignment.job,
        SOCKET_VARIABLE: str(instance.disk.socket()),
        **({} if study is None else {IMPORTS_VARIABLE: str(instance.disk.home / "imports")}),
    }


def secret_environment(assignment: Assignment) -> dict[str, str]:
    """The secrets that a job sees; see `job_environment` for their names."""
    return _without_castors(assignment.secrets)


def outside_image(instance: Instance, variables: Mapping[str, str], python: str) -> dict[str, str]:
    """The whole environment of what runs on the instance itself, with `python` first in PATH."""
    merged = {**instance.environment, **variables}
    first = str(Path(python).parent)
    merged["PATH"] = ":".join(part for part in (first, merged.get("PATH")) if part)
    return merged


def is_cpu(assignment: Assignment) -> bool:
    """The devices are cores."""
    return assignment.offer.device_kind.startswith("cpu")


def packages() -> tuple[Path, ...]:
    """Where this interpreter has its packages: Castor, and usually torch."""
    own = {
        Path(directory).resolve()
        for directory in (*site.getsitepackages(), site.getusersitepackages())
    }
    return tuple(Path(part) for part in sys.path if Path(part).resolve() in own)


def _without_castors(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if name == BATCH_LOG_VARIABLE or not name.startswith("CASTOR_")
    }
