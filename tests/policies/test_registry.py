from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from autoscaler import plug_ins
from autoscaler.domain.errors import SpecError
from autoscaler.policies import registry
from autoscaler.policies.marginal.policy import MarginalPolicy
from autoscaler.policies.registry import create_policy, policies, require_ground
from autoscaler.policies.static import StaticParameters, StaticPolicy


def installed(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = [EntryPoint(name, place, registry.ENTRY_POINTS) for name, place in places.items()]
    monkeypatch.setattr(plug_ins, "entry_points", lambda group: points)


def test_our_own_policies_are_there() -> None:
    found = {each.name: each.trouble for each in policies()}
    assert {"fifo", "marginal", "pollux", "static", "throughput", "tiresias"} <= found.keys()
    assert set(found.values()) == {None}
    assert isinstance(create_policy("marginal"), MarginalPolicy)
    assert isinstance(create_policy("static", StaticParameters(2)), StaticPolicy)


def test_an_unknown_policy_names_those_that_there_are() -> None:
    with pytest.raises(SpecError, match=r'policy: "luck" is no policy: there are .*fifo, .*marg'):
        create_policy("luck")
    with pytest.raises(SpecError, match='"margnal" is no policy: did you mean "marginal"'):
        create_policy("margnal")


def test_others_can_be_installed_but_not_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "autoscaler.policies.static:StaticPolicy"
    installed(monkeypatch, fixed=place, marginal=place)
    assert isinstance(create_policy("fixed"), StaticPolicy)
    assert isinstance(create_policy("marginal"), MarginalPolicy)


@pytest.mark.parametrize(
    ("place", "trouble"),
    [
        ("no.such.module:Policy", "ModuleNotFoundError: No module named 'no'"),
        ("autoscaler.policies.static:Missing", "AttributeError: .* 'Missing'"),
    ],
)
def test_a_broken_one_is_listed_with_its_trouble(
    place: str, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, broken=place)
    (found,) = [each for each in policies() if each.name == "broken"]
    assert found.trouble is not None
    with pytest.raises(SpecError, match=f"broken can't be used: {trouble}"):
        create_policy("broken")


def test_a_policy_is_only_used_where_it_can_plan() -> None:
    require_ground("marginal", create_policy("marginal"), is_pool=True)
    require_ground("marginal", create_policy("marginal"), is_pool=False)
    with pytest.raises(SpecError, match=r"policy: fifo shares out the machines.*: use --cluster"):
        require_ground("fifo", create_policy("fifo"), is_pool=False)
    with pytest.raises(SpecError, match="policy: static buys instances: use --offers"):
        require_ground("static", create_policy("static"), is_pool=True)
