"""Table of threats in docs/security.md: the tests that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """Return the cells of each row of the table."""
    section = PAGE.read_text().split("## Threats\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_table_comes_first_and_each_row_has_all_its_cells() -> None:
    assert re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)[0] == "Threats"
    heading, *threats = rows()
    assert heading == ["threat", "what protects", "test", "what is left"]
    assert len(threats) >= 15
    assert all(len(row) == 4 and row[0] and row[1] for row in threats)


def test_each_threat_names_tests_that_exist() -> None:
    for threat, _, named, _ in rows()[1:]:
        tests = TEST.findall(named)
        assert tests and TEST.sub("", named).strip(", ") == "", threat
        for file, name in tests:
            functions = ast.walk(ast.parse((ROOT / file).read_text()))
            names = {node.name for node in functions if isinstance(node, ast.FunctionDef)}
            assert name in names, f"{threat}: {file} has no {name}"
