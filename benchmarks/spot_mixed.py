"""Upper bound on the saving of pools that mix spot and on-demand instances of one type.

    CASTOR_DATA=... python benchmarks/spot_mixed.py

At each moment of a trace of "Can't Be Late" (Wu et al., NSDI'24) with several instances, the job
holds the allocation of the least price of progress, without any cost of changes: available spot
instances, on-demand, or both. Goodput is the 0.85th power of up to 16 instances; prices are those
of p3.2xlarge.
"""

from __future__ import annotations

import numpy as np
from data_folder import data_folder

from autoscaler.economics.pricing.price import price_of_progress
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

MOST_INSTANCES = 16
EXPONENT = 0.85
SPOT_USD_PER_HOUR, ON_DEMAND_USD_PER_HOUR = 0.49, 3.06
VALUES_OF_TIME = (0.5, 3.0, 10.0, 30.0, 100.0)
FILES = ("availability/us-east-2b_v100_1.json", "preemption/us-east-1f_v100_1.json")


def usd_per_progress(trace: CapacityTrace, value_of_time: float, is_mixed: bool) -> float:
    """Return money and priced waiting over the whole trace, per unit of progress."""
    spent = progress = 0.0
    for count in trace.counts:
        spot, on_demand = np.indices((min(count, MOST_INSTANCES) + 1, MOST_INSTANCES + 1))
        total = spot + on_demand
        is_allowed = (total > 0) & (total <= MOST_INSTANCES)
        is_allowed &= is_mixed | (spot == 0) | (on_demand == 0)
        rate = total[is_allowed] ** EXPONENT
        paid_usd = (
            spot[is_allowed] * SPOT_USD_PER_HOUR + on_demand[is_allowed] * ON_DEMAND_USD_PER_HOUR
        )
        price = price_of_progress(paid_usd, value_of_time, rate)
        best = int(np.argmin(price))
        progress += float(rate[best])
        spent += float(price[best] * rate[best])
    return spent / progress


def main() -> None:
    """Print the saving of mixing."""
    data = data_folder("spot")
    for file in FILES:
        trace = read_capacity_trace(data / "spot" / file)
        for value in VALUES_OF_TIME:
            pure, mixed = (usd_per_progress(trace, value, is_mixed) for is_mixed in (False, True))
            print(f"{file}, {value:g} $/h: mixing saves {1 - mixed / pure:.1%}")


if __name__ == "__main__":
    main()
