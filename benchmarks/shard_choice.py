"""Choice of the devices that hold one copy of a model, against both layouts in the simulator.

python benchmarks/shard_choice.py

Each scenario has a model, offers and two shards. The controller chooses one of them before
anything is bought, from the declared model alone. Then both run to the end under the real
controller on simulated spot and on-demand instances, with true step times that differ from the
prior's by random factors. No step time here was measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.controller.jobs.fitting import device_bytes, memory_of, unfit_offers, with_shard
from autoscaler.controller.predict.circumstances import Circumstances
from autoscaler.controller.predict.shards import choose_shard
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec, ParallelismSpec
from autoscaler.domain.model import ModelSpec, Precision
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.goodput.coordinates import to_theta
from autoscaler.goodput.formulas import formula_for
from autoscaler.goodput.prior import prior_for
from autoscaler.goodput.throughput import Predictor
from autoscaler.market.device_kinds import speed_ratio
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import read_profiles
from autoscaler.simulator.results import result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

SEEDS = 5
# Log standard deviation of the true times about the medians of the priors, for each parameter.
TRUTH_LOG_DEVIATION = 0.4
BATCH, MOST_INSTANCES = 64, 8
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Case:
    """A job and its market; `example_seconds` are those of one example on one A10G."""

    name: str
    model: ModelSpec
    shards: tuple[int, int]
    offers: tuple[Offer, ...]
    examples: int
    example_seconds: float

    @property
    def spec(self) -> JobSpec:
        """The job, whose shard is not decided."""
        return JobSpec(
            "gpt",
            ("python", "train.py"),
            batch=BatchSpec(BATCH, BATCH, BATCH),
            instances=InstanceBounds(1, MOST_INSTANCES),
            parallelism=ParallelismSpec(shards=self.shards),
            model=self.model,
            total_examples=float(self.examples),
        )


def offer(kind: str, usd: str, devices: int, network: float, hazard: float = 0.0) -> Offer:
    """Return an offer; with a hazard in reclaims an hour it is spot."""
    purchase = Purchase.SPOT if hazard else Purchase.ON_DEMAND
    return Offer(
        id=f"{kind}-{purchase}",
        provider="toys",
        instance_type=kind,
        zone="here",
        purchase=purchase,
        devices=devices,
        device_kind=kind,
        usd_per_hour=Decimal(usd),
        boot_seconds=180.0,
        network_bytes_per_second=network,
        reclaims_per_hour=hazard,
    )


SPOT_A10G = offer("a10g", "6.50", 8, 12.5e9, hazard=0.05)
A100 = offer("a100-80", "27.45", 8, 5e10)
BF16 = Precision.BF16
CASES = (
    Case("0.3B", ModelSpec(3e8, activation_bytes=2e8), (1, 4), (SPOT_A10G,), 600_000, 0.05),
    Case(
        "7B in bf16",
        ModelSpec(7e9, precision=BF16, activation_bytes=5e8),
        (2, 4),
        (SPOT_A10G, A100),
        200_000,
        1.2,
    ),
    Case(
        "13B in bf16",
        ModelSpec(1.3e10, precision=BF16, activation_bytes=5e8),
        (8, 16),
        (SPOT_A10G, A100),
        100_000,
        2.2,
    ),
)


def truth_on(case: Case, spec: JobSpec, sold: Offer, seed: int) -> Predictor:
    """Return the true throughput on an offer: the prior's medians times random factors."""
    seconds = case.example_seconds / speed_ratio(sold.device_kind, "a10g")
    prior = prior_for(
        sold.device_kind,
        case.model.gradient_bytes,
        sold.network_bytes_per_second,
        seconds,
        formula_for(spec.parallelism),
    )
    generator = np.random.default_rng([seed, len(sold.device_kind), sold.devices])
    factors = TRUTH_LOG_DEVIATION * generator.standard_normal(len(prior.mean))
    factors[-1] = 0.0
    return Predictor(prior.formula, to_theta(prior.mean + factors))


def write_profile(case: Case, spec: JobSpec, folder: Path, seed: int) -> tuple[Offer, ...]:
    """Write the true step times on the offers that hold the job, and return these offers."""
    memory = memory_of(spec)
    unfit = {unfit_offer.offer for unfit_offer in unfit_offers(spec, case.offers, memory)}
    fitting = tuple(sold for sold in case.offers if sold.id not in unfit)
    application = folder / "gpt"
    application.mkdir()
    for sold in fitting:
        most = None if memory is None else memory.most_examples(device_bytes(sold) or 0)
        batches = [batch for batch in BATCHES if most is None or batch <= most]
        lines = rows_of(truth_on(case, spec, sold, seed), sold, batches)
        path = application / f"placements-{sold.device_kind}.csv"
        path.write_text("".join(f"{line}\n" for line in lines))
    statistics = f"progress,iteration,metric,grad_sqr,grad_var\n{case.examples // BATCH},"
    statistics += f"{case.examples // BATCH},0.5,1.0,4.0\n"
    (application / f"validation-{BATCH}.csv").write_text(statistics)
    return fitting


def rows_of(truth: Predictor, sold: Offer, batches: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a profile: placement, batch, seconds of a step and of its exchange."""
    yield "placement,local_bsz,step_time,sync_time"
    for devices in sorted({1, sold.devices}):
        for instances in range(1, MOST_INSTANCES + 1):
            for batch in batches:
                size = instances, devices * instances
                step = float(truth.step_seconds(*size, batch, 0))
                sync = max(step - float(truth.compute_seconds(*size, batch)), 1e-9)
                yield f"{str(devices) * instances},{batch},{step},{sync}"


def simulated_usd(case: Case, shard: int, seed: int) -> tuple[float, float]:
    """Return the US dollars and the seconds of the whole job at one shard."""
    spec = with_shard(case.spec, shard)
    with tempfile.TemporaryDirectory() as directory:
        offers = write_profile(case, spec, Path(directory), seed)
        profiles = read_profiles(Path(directory))
    store, clock = memory_store(), VirtualClock()
    cloud = SimulatedProvider(
        SimulatedCloud(SimulatedSettings(offers=offers, seed=seed), clock),
        store.settings.controller_id(),
    )
    scenario = Scenario(
        arrivals=(Arrival("gpt", 0.0, "gpt", max(shard, offers[0].devices), BATCH),),
        profiles=profiles,
        equipment={sold.id: Equipment(sold, sold.device_kind) for sold in offers},
        objective=lambda now_seconds: Objective(),
        instances=spec.instances,
        training=TrainingSettings(parameter_bytes=case.model.gradient_bytes),
        adapts_batch=False,
        parallelism=spec.parallelism,
    )
    timed = TimedPolicy(create_policy("marginal"), SystemClock())
    run = Simulation(scenario, store, cloud, timed, clock).run()
    result = result_of("marginal", seed, run, store, {sold.id: sold for sold in offers})
    return result.totals.cost_usd, run.ended_seconds


def main() -> None:
    """Print the table of docs/training-fsdp.md."""
    print("| job | shard | forecast with time, $ | simulated, $ | hours | cheaper in |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        choice = choose_shard(case.spec, lambda decided: None, Circumstances(case.offers, ()), 0.0)
        runs = {
            shard: [simulated_usd(case, shard, seed) for seed in range(SEEDS)]
            for shard in case.shards
        }
        for forecast in choice.forecasts:
            other = next(shard for shard in case.shards if shard != forecast.shard)
            costs_usd, seconds = np.array(runs[forecast.shard]).T
            other_costs_usd = np.array(runs[other])[:, 0]
            mark = " (chosen)" if forecast.shard == choice.shard else ""
            usd = "none fits" if forecast.cost_usd is None else f"{forecast.cost_usd:.0f}"
            print(
                f"| {case.name} | {forecast.shard}{mark} | {usd} | {costs_usd.mean():.0f} | "
                f"{seconds.mean() / 3600:.1f} | {(costs_usd < other_costs_usd).sum()} of {SEEDS} |"
            )


if __name__ == "__main__":
    main()
