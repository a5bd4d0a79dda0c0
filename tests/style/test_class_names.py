"""One meaning for each public class name of the product."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("autoscaler", "hpo", "providers")
ALLOWED = Path(__file__).with_name("class_names.toml")


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


def allowed() -> dict[str, int]:
    counts: dict[str, int] = tomllib.loads(ALLOWED.read_text())["modules"]
    return counts


def test_a_public_class_name_has_one_meaning() -> None:
    """Rename one of the classes, rather than add its name to the list."""
    several = {
        name: sorted(places)
        for name, places in modules_by_class().items()
        if len(places) > allowed().get(name, 1)
    }
    assert several == {}


def test_the_list_of_names_with_several_meanings_only_shrinks() -> None:
    """Lower a count, or delete its line, when a class was renamed."""
    several = modules_by_class()
    outdated = {
        name: f"{count} allowed, {len(several.get(name, ''))} defined"
        for name, count in allowed().items()
        if count > len(several.get(name, ""))
    }
    assert outdated == {}
