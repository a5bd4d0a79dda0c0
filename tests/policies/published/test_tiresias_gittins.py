from __future__ import annotations

import pytest

from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived
from autoscaler.policies.published.tiresias_gittins import (
    GittinsParameters,
    ServiceDistribution,
    TiresiasGittinsPolicy,
    philly_services,
)
from tests.conformance.pool_policy import PoolPolicyConformance, pool_job, pool_snapshot, sizes
from tests.economics.cases import NOW


class TestTiresiasGittins(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> TiresiasGittinsPolicy:
        return TiresiasGittinsPolicy()


def had(name: str, device_seconds: float) -> JobSnapshot:
    service = ServiceReceived(device_seconds, started_seconds=NOW - 3600.0)
    return pool_job(name, 8, service=service, submitted_seconds=NOW - 3600.0)


def test_the_index_is_the_chance_to_end_over_what_that_takes() -> None:
    """Two in four end within 10 of 0, at 4 and at 8; the others take all 10."""
    four = ServiceDistribution((8.0, 4.0, 100.0, 20.0))
    assert four.gittins_index(0.0, 10.0) == pytest.approx(2 / (4 + 8 + 10 + 10))
    assert four.gittins_index(4.0, 10.0) == pytest.approx(1 / (4 + 10 + 10))
    assert four.gittins_index(100.0, 10.0) == 0.0


def test_a_job_that_is_about_to_end_goes_before_one_that_has_had_less() -> None:
    """Jobs take 1,000 or 10,000: who has had 900 is likely to end, who has had 1,100 is not."""
    parameters = GittinsParameters((1000.0,) * 9 + (10_000.0,), quantum_device_seconds=200.0)
    policy = TiresiasGittinsPolicy(parameters)
    moment = pool_snapshot(had("ending", 900.0), had("long", 1100.0), had("new", 0.0))
    assert sizes(policy.plan(moment)) == {"ending": 8, "long": 0, "new": 0}


def test_queues_come_before_the_index() -> None:
    parameters = GittinsParameters((70_000.0,), quantum_device_seconds=20_000.0)
    moment = pool_snapshot(had("ending", 60_000.0), had("new", 0.0))
    assert sizes(TiresiasGittinsPolicy(parameters).plan(moment)) == {"ending": 0, "new": 8}


def test_a_job_of_the_published_trace_is_likelier_to_end_the_younger_it_is() -> None:
    services = philly_services()
    assert len(services) == 1000
    assert sum(service <= 3600.0 for service in services) == 768
    philly = ServiceDistribution(services)
    indices = [philly.gittins_index(hours * 3600.0, 3250.0) for hours in (0, 1, 10, 100)]
    assert indices == sorted(indices, reverse=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"services_device_seconds": ()}, "services_device_seconds"),
        ({"services_device_seconds": (1.0, 0.0)}, "services_device_seconds"),
        ({"quantum_device_seconds": 0.0}, "quantum_device_seconds"),
    ],
)
def test_parameters_that_say_nothing_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GittinsParameters(**values)  # type: ignore[arg-type]
