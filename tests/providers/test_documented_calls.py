"""Calls of the clouds that the code makes, compared with the tables of docs/cloud-calls.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Place of the action among the arguments of a function that makes or names a call. The two
# methods of EC2 take the action and make its `Call` themselves.
PLACES = {"Call": 1, "describe": 0, "pages": 0}
FORWARDED = "Call(self.region, action)"


def named_actions(cloud: str) -> Iterator[str]:
    """Yield the actions that a provider's code names; fail for one that is no literal."""
    for path in (ROOT / "providers" / cloud).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node) == FORWARDED:
                continue
            place = PLACES.get(ast.unparse(node.func).rpartition(".")[2])
            if place is not None:
                action = node.args[place]
                assert isinstance(action, ast.Constant), f"{path.name}: {ast.unparse(node)}"
                yield action.value


def documented_actions(heading: str) -> set[str]:
    """Return the actions in the first table below a heading."""
    text = (ROOT / "docs" / "cloud-calls.md").read_text()
    table = text.partition(f"\n## {heading}\n")[2].partition("\n\n|")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))


@pytest.mark.parametrize(
    ("cloud", "heading", "some"),
    [
        ("aws", "EC2", {"CreateFleet", "DescribeInstances", "GetProducts"}),
        ("gcp", "Compute Engine", {"instances.insert", "skus.list", "sts.token"}),
    ],
)
def test_each_call_is_documented_and_no_other(cloud: str, heading: str, some: set[str]) -> None:
    named = set(named_actions(cloud))
    assert some <= named
    assert documented_actions(heading) == named


def test_each_method_of_a_client_of_boto3_is_documented() -> None:
    text = "".join(path.read_text() for path in (ROOT / "providers" / "aws").glob("*.py"))
    methods = set(re.findall(r"client\.([a-z_]+)\b", text)) - {"meta"}
    actions = {method.title().replace("_", "") for method in methods}
    assert "CreateFleet" in actions and actions <= documented_actions("EC2")
