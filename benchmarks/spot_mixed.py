"""What pools that mix spot with on-demand of one type might save, at most.

    CASTOR_DATA=... python benchmarks/spot_mixed.py

At each moment of a trace of "Can't Be Late" (Wu et al., NSDI'24) with several instances the job
holds, without any cost of changing, what has the least price of progress: of spot as many as there
are, or on-demand, or both. Goodput goes with the 0.85th power of up to 16 instances, prices are
those of p3.2xlarge.
"""

from __future__ import annotations

import numpy as np
from data_folder import data_folder

from autoscaler.economics.price import price_of_progress
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

MOST_INSTANCES = 16
EXPONENT = 0.85
SPOT_USD_PER_HOUR, ON_DEMAND_USD_PER_HOUR = 0.49, 3.06
VALUES_OF_TIME = (0.5, 3.0, 10.0, 30.0, 100.0)
FILES = ("availability/us-east-2b_v100_1.json", "preemption/us-east-1f_v100_1.json")


def usd_per_progress(trace: CapacityTrace, value_of_time: float, is_mixed: bool) -> float:
    """Money and waiting over the whole trace, for each unit of progress."""
    spent = progress = 0.0
    for count in trace.counts:
        spot, firm = np.indices((min(count, MOST_INSTANCES) + 1, MOST_INSTANCES + 1))
        together = spot + firm
        held = (together > 0) & (together <= MOST_INSTANCES)
        held &= is_mixed | (spot == 0) | (firm == 0)
        rate = together[held] ** EXPONENT
        paid = spot[held] * SPOT_USD_PER_HOUR + firm[held] * ON_DEMAND_USD_PER_HOUR
        price = price_of_progress(paid, value_of_time, rate)
        best = int(np.argmin(price))
        progress += float(rate[best])
        spent += float(price[best] * rate[best])
    return spent / progress


def main() -> None:
    """Print what mixing saves."""
    data = data_folder("spot")
    for file in FILES:
        trace = read_capacity_trace(data / "spot" / file)
        for value in VALUES_OF_TIME:
            pure, mixed = (usd_per_progress(trace, value, is_mixed) for is_mixed in (False, True))
            print(f"{file}, {value:g} $/h: mixing saves {1 - mixed / pure:.1%}")


if __name__ == "__main__":
    main()
