"""Package `castor-rack` as an installer places it in a directory of `sys.path`."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def install(directory: Path) -> Path:
    """Install the package and its metadata in a directory; return the directory."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "castor_rack", directory / "castor_rack", ignore=ignored)
    information = directory / f"castor_rack-{project['version']}.dist-info"
    information.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(head)
    lines = []
    for group, places in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {place}" for name, place in places.items()]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return directory
