"""Pages of a simulation, served by its own process while it runs."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import prepare, run_simulation
from autoscaler.cli.simulate.serving import PacedClock, SimulationStopped, served
from autoscaler.domain.errors import SpecError
from tests.cli.simulate.test_command import CLUSTER, OFFERS, RESERVED, WORKLOAD
from tests.simulator import toy


@pytest.fixture
def options(tmp_path: Path) -> SimulateOptions:
    (tmp_path / "workload.csv").write_text(WORKLOAD)
    (tmp_path / "offers.yaml").write_text(OFFERS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    toy.write_profile(tmp_path / "profiles")
    return SimulateOptions(
        workload=tmp_path / "workload.csv",
        profiles=[tmp_path / "profiles"],
        offers=tmp_path / "offers.yaml",
    )


def test_pages_show_a_simulation_that_ends_as_without_them(options: SimulateOptions) -> None:
    with served(prepare(options), pace=10_000.0) as simulation:
        result = simulation.result.result(60.0)
        with httpx.Client(follow_redirects=True) as browser:
            page = browser.get(simulation.link())
            assert page.status_code == 200 and "Sign out" in page.text
            jobs = browser.get(f"{simulation.url}/v1/jobs").json()
            receipt = browser.get(f"{simulation.url}/v1/jobs/a/receipt").json()
    assert {job["phase"] for job in jobs} == {"finished"}
    seconds = {part["category"]: part["seconds"] for part in receipt["whole"]["parts"]}
    assert seconds["useful"] > 0 and seconds["boot"] == pytest.approx(30.0, abs=1.0)
    assert seconds.get("unknown", 0.0) == pytest.approx(0.0, abs=1.0)
    alone = run_simulation(options)
    assert [job.name for job in result.jobs] == ["a", "b"]
    assert result.totals.cost_usd == pytest.approx(alone.totals.cost_usd, rel=1e-6)
    assert result.totals.avg_jct_s == pytest.approx(alone.totals.avg_jct_s, rel=1e-6)


@pytest.mark.parametrize("offer", ["reserved", "spot"])
def test_reservations_and_traces_count_from_the_begin(
    options: SimulateOptions, tmp_path: Path, offer: str
) -> None:
    reserved = RESERVED.replace("max_instances: 1", "max_instances: 1, until: 4m")
    spot = OFFERS.replace("1.2,", "0.12, trace: there.json, purchase: spot,")
    (tmp_path / "there.json").write_text('{"metadata": {"gap_seconds": 7000}, "data": [0, 4, 4]}')
    (tmp_path / "offers.yaml").write_text(spot if offer == "spot" else OFFERS + reserved)
    with served(prepare(options), pace=10_000.0) as simulation:
        result = simulation.result.result(60.0)
    alone = run_simulation(options)
    for job, same in zip(result.jobs, alone.jobs, strict=True):
        waited_seconds = job.started_s - job.submitted_s
        assert waited_seconds == pytest.approx(same.started_s - same.submitted_s, abs=1.0)
        assert {part.offer for part in job.timeline} == {part.offer for part in same.timeline}
    assert result.totals.cost_usd == pytest.approx(alone.totals.cost_usd, rel=0.01)


def test_pages_that_close_end_the_simulation(options: SimulateOptions) -> None:
    with served(prepare(options), pace=1.0) as simulation:
        assert not simulation.result.done()
    assert isinstance(simulation.result.exception(), SimulationStopped)


def test_a_clock_keeps_its_pace_and_tells_of_each_step() -> None:
    stopped, steps = threading.Event(), list[float]()
    clock = PacedClock(100.0, 10_000.0, stopped)
    clock.on_step = lambda: steps.append(clock.now())
    clock.advance(12_000.0)
    assert steps == [5_100.0, 10_100.0, 12_100.0]
    stopped.set()
    with pytest.raises(SimulationStopped):
        clock.advance(1.0)
    assert clock.now() == 12_100.0


@pytest.mark.parametrize("pace", [0.5, 10_001.0, float("nan")])
def test_a_pace_out_of_range_is_refused(options: SimulateOptions, pace: float) -> None:
    with pytest.raises(SpecError, match=r"--pace: .*must be from 1 to 10,000"):
        served(prepare(options), pace).__enter__()


def test_a_fixed_pool_has_no_pages(options: SimulateOptions) -> None:
    pool = str(options.offers).replace("offers", "cluster")
    pooled = SimulateOptions(
        workload=options.workload, profiles=options.profiles, cluster=pool, policy="fifo"
    )
    with pytest.raises(SpecError, match=r"--serve: .*give --offers"):
        served(prepare(pooled), 100.0).__enter__()
