from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.scarcity import fluid_run
from autoscaler.economics.scarcity.fluid import FluidJob, finish_prices


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=30)
def test_number_by_number_is_as_all_at_once(seed: int, count: int, limits: int) -> None:
    random = np.random.default_rng(seed)
    sizes = 12
    jobs = [
        FluidJob(
            value_of_time=float(random.uniform(1e-3, 1e-2)),
            work=float(random.lognormal(10.0, 2.0)),
            usd_per_second=random.uniform(1e-3, 2e-2, sizes),
            rate=np.cumsum(random.uniform(0.0, 10.0, sizes)),
            uses=random.integers(0, 5, (limits, sizes)).astype(np.float64),
        )
        for _ in range(count)
    ]
    maximum = random.integers(1, 12, limits).astype(np.float64)
    few = finish_prices(jobs, maximum)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid_run, "_FEW", 0)
        many = finish_prices(jobs, maximum)
    assert few.tolist() == many.tolist()
