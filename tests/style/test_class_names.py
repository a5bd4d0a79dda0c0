"""One meaning for each public class name of the product."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("autoscaler", "hpo", "providers")


def meaning(path: Path) -> str:
    """Return the module of a file, where equal modules of several clouds count as one.

    `providers/aws/settings.py` and `providers/gcp/settings.py` hold the same parts of two
    providers, so a class of both has one meaning.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    is_of_a_cloud = parts[0] == "providers" and parts[1] in {"aws", "gcp", "local", "simulated"}
    return ".".join((parts[0], "*", *parts[2:]) if is_of_a_cloud else parts)


def modules_by_class() -> dict[str, set[str]]:
    """Return the modules that define a public class of each name, if there are several."""
    modules: dict[str, set[str]] = {}
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for statement in ast.parse(path.read_text()).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    modules.setdefault(statement.name, set()).add(meaning(path))
    return {name: places for name, places in modules.items() if len(places) > 1}


def test_a_public_class_name_has_one_meaning() -> None:
    assert {name: sorted(places) for name, places in modules_by_class().items()} == {}
