"""A provider of an outside package, found by its entry point, in the suite of all providers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from werkzeug.wrappers import Response

from autoscaler.clock import VirtualClock
from autoscaler.clouds import open_providers, open_storage
from autoscaler.domain.errors import PermissionDenied, SpecError, Throttled, Unavailable
from autoscaler.domain.instance import CloudState
from providers.base import Provider
from providers.plugin import ControllerContext
from tests.conformance.provider import (
    OURS,
    ProviderConformance,
    cheapest,
    end,
    launch_running,
    order,
)
from tests.providers.rack.server import TOKEN, TYPES, Rack

HERE = Path(__file__).parent
RECIPE = HERE.parents[2] / "docs" / "recipes" / "add-a-provider.md"
MOST_LINES = 450
POOLS = """\
cloud: rack
url: {url}
token_file: {token_file}
types: [small, large]
max_machines: 16
boot: 1s
"""


class RackCloud:
    """One rack, for `tests.conformance.provider`; each controller has a state of its own."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock(1_750_000_000.0)
        self.rack = Rack(self.clock)
        self._directory = directory
        self.token = directory / "token"
        self.token.write_text(f"{TOKEN}\n")
        self.pools = directory / "rack.yaml"
        self.pools.write_text(POOLS.format(url=self.rack.url, token_file=self.token))

    def context(self, controller: str, host: str = "127.0.0.1") -> ControllerContext:
        return ControllerContext(self._directory / controller, host, controller, self.clock)

    def connect(self, controller: str) -> Provider:
        return open_providers(None, [str(self.pools)], self.context(controller))["rack"]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            self.clock.advance(0.5)
        raise AssertionError("waited in vain")

    def exhaust(self, provider: Provider) -> str:
        for number in range(next(type["machines"] for type in TYPES)):  # type: ignore[call-overload]
            provider.launch(order(provider, f"fill-{number}"))
        return cheapest(provider).id

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        self.rack.reclaim(instance_id)

    def remains(self, instance_id: str) -> Sequence[str]:
        return [machine for machine in self.rack.alive() if machine == instance_id]


@pytest.fixture
def cloud(site: Path, tmp_path: Path) -> Iterator[RackCloud]:
    found = RackCloud(tmp_path)
    yield found
    found.rack.close()


class TestRack(ProviderConformance):
    """`ProviderConformance` on machines of a rack."""


def test_it_is_a_small_package() -> None:
    files = [*HERE.glob("castor_rack/*.py"), HERE / "pyproject.toml"]
    assert sum(len(path.read_text().splitlines()) for path in files) <= MOST_LINES


def without_indents(text: str) -> str:
    return re.sub("^ +", "", text, flags=re.MULTILINE)


def test_the_recipe_shows_the_package_as_it_is(cloud: RackCloud) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)\n```$", RECIPE.read_text(), re.DOTALL | re.MULTILINE)
    sources = [path for path in HERE.rglob("*") if path.suffix in (".py", ".toml")]
    text = without_indents("\n".join(path.read_text() for path in sources))
    shown = [block for language, block in blocks if language in ("python", "toml")]
    assert len(shown) == 5
    assert not [block for block in shown if without_indents(block) not in text]
    (pools,) = [block for language, block in blocks if language == "yaml"]
    pools = pools.replace("https://rack.example/api", cloud.rack.url)
    cloud.pools.write_text(pools.replace("/etc/castor/rack-token", str(cloud.token)))
    assert [limit.maximum for limit in cloud.connect(OURS).limits()] == [16]


def test_it_has_no_storage_and_needs_none(cloud: RackCloud) -> None:
    assert open_storage([str(cloud.pools)], cloud.context(OURS)) is None


def test_what_is_wrong_in_its_pools_is_named_with_the_line(cloud: RackCloud) -> None:
    cloud.pools.write_text(cloud.pools.read_text().replace("max_machines: 16", "max_machines: 0"))
    with pytest.raises(SpecError, match=r"rack\.yaml:5: max_machines: must be at least 1"):
        cloud.connect(OURS)


def test_a_controller_that_machines_can_not_reach_is_refused(cloud: RackCloud) -> None:
    with pytest.raises(SpecError, match=r"--host: instances can't reach 0\.0\.0\.0"):
        open_providers(None, [str(cloud.pools)], cloud.context(OURS, host="0.0.0.0"))


def test_a_launch_whose_answer_is_lost_is_repeated(cloud: RackCloud) -> None:
    provider = cloud.connect(OURS)
    cloud.rack.replies.append(Response(status=502))
    with pytest.raises(Unavailable):
        provider.launch(order(provider, "1"))
    launched = provider.launch(order(provider, "1"))
    assert cloud.rack.alive() == [launched.id]


def test_a_machine_that_was_seen_once_is_not_forgotten(cloud: RackCloud) -> None:
    """Also if the answer to its launch was lost: the list names its token."""
    provider = cloud.connect(OURS)
    cloud.rack.replies.append(Response(status=502))
    with pytest.raises(Unavailable):
        provider.launch(order(provider, "1"))
    (listed,) = provider.instances()
    ended = end(cloud, provider, listed.id)  # type: ignore[arg-type]
    assert ended.state is CloudState.TERMINATED
    assert cloud.connect(OURS).launch(order(provider, "1")) == ended


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(403, "forbidden", PermissionDenied), (429, "too_many_calls", Throttled)],
)
def test_refusals_have_the_types_that_decide(
    cloud: RackCloud, status: int, code: str, error: type[Exception]
) -> None:
    provider = cloud.connect(OURS)
    launched = launch_running(cloud, provider, "1")  # type: ignore[arg-type]
    cloud.rack.replies.append(Response(f'{{"code": "{code}"}}', status))
    with pytest.raises(error, match=f"rack: DELETE machines/{launched.id}: {code}"):
        provider.terminate([launched.id])


def test_a_rack_that_is_away_is_not_an_empty_one(cloud: RackCloud) -> None:
    provider: Any = cloud.connect(OURS)
    launch_running(cloud, provider, "1")  # type: ignore[arg-type]
    cloud.rack.close()
    with pytest.raises(Unavailable):
        provider.instances()
    cloud.rack = Rack(cloud.clock)
