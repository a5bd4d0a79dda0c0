"""Cost of a fine-tuning job by Transformers' Trainer: elastic, and on fixed numbers of instances.

Replays the profile of examples/huggingface in the simulator: the real controller on a virtual
clock. The profile is in benchmarks/fine_tuning/, as `--measure` has written it on this machine:

- step times on one core: CPU time of one thread, least of several repetitions
- sums over two instances: gloo over loopback, least of several; over more instances they are not
  measured, but follow from the ring's 2 (n - 1) / n
- gradient statistics: those that the session reports, in a job whose batch may grow

The measured job is short beside a boot, so the simulated one is `--length` times as long, with the
same statistics at the same fraction of its length. Prints Markdown.

    build/frameworks/bin/python benchmarks/fine_tuning.py --measure
    python benchmarks/fine_tuning.py [--length 400] [--seeds 1]
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from clairvoyant import Ground, ground_of
from elastic_cloud import Outcome, Setup, run_job

from autoscaler.domain.job import BatchSpec, InstanceBounds
from autoscaler.domain.offer import Purchase
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.spec.offers_file import load_offers

FOLDER = Path(__file__).parent / "fine_tuning"
APPLICATION = FOLDER / "huggingface"
INITIAL_BATCH, LARGEST_BATCH = 32, 256
DEVICE_BATCHES = (4, 8, 16, 32, 64)
INSTANCES = (1, 2, 3, 4, 6, 8)
VALUES_OF_TIME = (0.1, 0.25, 1.0)
POINTS = 10
FIXED = (1, 2, 4, 6, 8)
WITH_SPOT = -1
NAMES = {0: "elastic, on demand", WITH_SPOT: "elastic, spot too"}
PARAMETER_BYTES = 482_304  # of the example's model, 4 bytes for each parameter


def measure(epochs: int, examples: int) -> None:
    """Measure the example's step times and gradient statistics, and write its profile."""
    APPLICATION.mkdir(parents=True, exist_ok=True)
    steps = {batch: _step_seconds(batch) for batch in DEVICE_BATCHES}
    pair_seconds = _sum_seconds()
    with (APPLICATION / "placements-cpu-core.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["placement", "local_bsz", "step_time", "sync_time"])
        for instances in INSTANCES:
            sync_seconds = pair_seconds * 2 * (instances - 1) / instances
            for batch, seconds in steps.items():
                row = [f"{seconds + sync_seconds:.5f}", f"{sync_seconds:.5f}"]
                writer.writerow(["1" * instances, batch, *row])
    rows = _statistics(epochs, examples)
    for batch in (INITIAL_BATCH, LARGEST_BATCH):
        with (APPLICATION / f"validation-{batch}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["progress", "iteration", "metric", "grad_sqr", "grad_var"])
            writer.writerows(rows)


def _model() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    torch.set_num_threads(1)
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout))


def _step_seconds(batch: int) -> float:
    """Return the CPU time of a step of the example's model on one core."""
    import torch

    model = _model()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(256, (batch, 64))
    times = []
    for _ in range(12):
        began = time.process_time()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - began)
    return min(times)


def _sum_of_rank(rank: int, store: str) -> float:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    gradients = torch.zeros(sum(parameter.numel() for parameter in _model().parameters()))
    times = []
    for _ in range(60):
        began = time.perf_counter()
        dist.all_reduce(gradients)
        times.append(time.perf_counter() - began)
    dist.destroy_process_group()
    return min(times)


def _sum_seconds() -> float:
    """Return the seconds of a sum of the model's gradients over two processes."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2) as ranks:
        return max(ranks.map(_sum_of_rank, range(2), [f"{folder}/store"] * 2))


def _statistics(epochs: int, examples: int) -> list[list[float]]:
    """Return rows of gradient statistics over a run of the example whose batch may grow."""
    from tests.training.fleet import Fleet

    spec = BatchSpec(
        initial=INITIAL_BATCH, maximum=LARGEST_BATCH, device_maximum=64, adaptive=True
    )
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), batch=spec)
        replica = fleet.start(
            str(Path(__file__).parent / "scripts" / "fine_tuned.py"),
            EPOCHS=str(epochs),
            EXAMPLES=str(examples),
            OUTPUT=folder,
        )
        try:
            if replica.wait():
                raise SystemExit(replica.log.read_text())
        finally:
            fleet.stop()
        reports = [report for report in replica.reports if report["noise"]]
    total = float(epochs * examples)
    rows: list[list[float]] = []
    for point in range(1, POINTS + 1):
        end = total * point / POINTS
        near = min(reports, key=lambda report: abs(report["progress_examples"] - end))
        noise = near["noise"]
        square, variance = noise["gradient_square"], noise["gradient_variance"]
        # Progress in these files counts steps of the initial batch.
        rows.append([round(end / INITIAL_BATCH), point, 0.0, 1.0, round(variance / square, 4)])
    return rows


def stretched(length: float, folder: Path) -> Profile:
    """Return the profile of a job that is `length` times as long as the measured one."""
    target = folder / APPLICATION.name
    target.mkdir()
    for path in APPLICATION.glob("placements-*.csv"):
        (target / path.name).write_text(path.read_text())
    for path in APPLICATION.glob("validation-*.csv"):
        with path.open() as source, (target / path.name).open("w", newline="") as file:
            reader, writer = csv.reader(source), csv.writer(file)
            writer.writerow(next(reader))
            writer.writerows([round(float(row[0]) * length), *row[1:]] for row in reader)
    return read_profiles(folder)[APPLICATION.name]


def cost(profile: Profile, ground: Ground, case: tuple[float, int, int]) -> Outcome:
    """Return the outcome at a value of time on fixed on-demand instances.

    0 instances stand for an elastic job on demand, and `WITH_SPOT` for one on spot, too.
    """
    value_of_time, instances, seed = case
    on_demand = tuple(
        machine.offer.id
        for machine in ground.machines
        if machine.offer.purchase is Purchase.ON_DEMAND
    )
    most = max(machine.most for machine in ground.machines)
    bounds = InstanceBounds(
        minimum=max(instances, 1),
        maximum=instances if instances > 0 else most,
        offers=None if instances == WITH_SPOT else on_demand,
    )
    setup = Setup(
        ground,
        "marginal",
        value_of_time,
        1000 * seed,
        parameter_bytes=PARAMETER_BYTES,
        instances=bounds,
    )
    return run_job(profile, setup)


def main() -> None:
    """Measure, or simulate all sizes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--examples", type=int, default=7168)
    parser.add_argument("--length", type=float, default=400.0)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.epochs, arguments.examples)
        return
    offers = load_offers(FOLDER / "offers.yaml", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        profile = stretched(arguments.length, Path(folder))
    ground = ground_of(offers, profile)
    print(
        "| $/h of time | size | $ | h | priced, $ | by that of the best fixed size |\n"
        "|---|---|---|---|---|---|"
    )
    for value in VALUES_OF_TIME:
        runs = {
            size: [cost(profile, ground, (value, size, seed)) for seed in range(arguments.seeds)]
            for size in (WITH_SPOT, 0, *FIXED)
        }
        priced = {
            size: fmean(run.cost_usd(value) for run in of_size) for size, of_size in runs.items()
        }
        best = min(priced[size] for size in FIXED)
        for size, of_size in runs.items():
            dollars = fmean(run.usd for run in of_size)
            hours = fmean(run.seconds for run in of_size) / 3600
            print(
                f"| {value:g} | {NAMES.get(size, f'{size} on demand')} | {dollars:.3f} "
                f"| {hours:.2f} | {priced[size]:.3f} | {priced[size] / best:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
