"""Runs and table of `castor compare`: one workload, several policies, several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.output import write_json
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import progress_bar, run_simulation
from autoscaler.cli.tables import fits, money, number, share, words_table
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.simulator.comparison import Estimate, PolicyFigures, compare
from autoscaler.simulator.results import Result

_COLUMNS = {
    "avg_jct_s": "average completion",
    "p99_jct_s": "99th percentile",
    "makespan_s": "makespan",
    "cost_usd": "cost",
    "gpu_hours": "device hours",
    "worst_ftf_rho": "worst fairness",
    "unfair_share": "unfair",
    "restarts": "resizes",
    "decision_ms_p50": "ms a plan",
}


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Policies to compare, seeds for each, and parallel processes.

    Ratios are relative to the first policy.
    """

    policies: Sequence[str]
    seeds: int = 5
    workers: int = 1

    def check(self) -> None:
        """Check that policies are unique and that both numbers are positive.

        Raises:
            SpecError: an option is wrong; the message names it.
        """
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise SpecError("name each policy once, as marginal,pollux", "--policies")
        for option, value in (("--seeds", self.seeds), ("--workers", self.workers)):
            if value < 1:
                raise SpecError(f"{value} must be at least 1", option)


def run_comparison(options: SimulateOptions, over: CompareOptions) -> tuple[PolicyFigures, ...]:
    """Simulate every policy with every seed, and show a progress bar.

    Raises:
        SpecError: an input of the simulation is wrong; the message names file and field.
        CastorError: a run failed; the message names policy and seed.
    """
    over.check()
    cases = [
        replace(options, policy=policy, seed=options.seed + number)
        for policy in over.policies
        for number in range(over.seeds)
    ]
    by_policy: dict[str, list[Result]] = {policy: [] for policy in over.policies}
    for case, result in zip(cases, _run_all(cases, over.workers), strict=True):
        by_policy[case.policy].append(result)
    return compare(by_policy)


def write_comparison(standings: Sequence[PolicyFigures], path: Path) -> None:
    """Write all figures and all totals to a JSON file.

    Raises:
        SpecError: the file can't be written.
    """
    write_json({"policies": [asdict(standing) for standing in standings]}, path)


class ComparisonTable:
    """Table of each figure's mean, 95 % confidence interval and ratio to the first policy.

    A row is a policy. If that is too wide, a row is a figure and policies are columns.
    """

    def __init__(self, standings: Sequence[PolicyFigures]) -> None:
        self._standings = standings
        self._shown = [
            name for name in _COLUMNS if any(_is_shown(standing, name) for standing in standings)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the widest layout that fits the console."""
        table = self._by_policy()
        if fits(table, console, options):
            yield table
            return
        for count in range(len(self._standings), 0, -1):
            tables = [
                self._by_figure(range(start, min(start + count, len(self._standings))))
                for start in range(0, len(self._standings), count)
            ]
            if all(fits(table, console, options) for table in tables):
                break
        for index, table in enumerate(tables):
            if index:
                yield Text()
            yield table

    def _by_policy(self) -> Table:
        headings = [_COLUMNS[name] for name in self._shown]
        table = words_table("policy", *headings, right=headings)
        for index, standing in enumerate(self._standings):
            table.add_row(standing.policy, *(self._cell(index, name) for name in self._shown))
        return table

    def _by_figure(self, indices: range) -> Table:
        policies = [self._standings[index].policy for index in indices]
        table = words_table("", *policies, right=policies)
        for name in self._shown:
            table.add_row(_COLUMNS[name], *(self._cell(index, name) for index in indices))
        return table

    def _cell(self, index: int, name: str) -> str:
        return _figure_text(name, self._standings[index], is_first=not index)


def print_comparison(standings: Sequence[PolicyFigures]) -> None:
    """Print all figures of all policies."""
    print_whole(ComparisonTable(standings))


def _run_all(cases: Sequence[SimulateOptions], workers: int) -> list[Result]:
    results = []
    with progress_bar() as progress:
        task = progress.add_task("runs", total=len(cases))
        if workers == 1:
            for case in cases:
                results.append(_run(case, progress))
                progress.advance(task)
            return results
        with ProcessPoolExecutor(workers) as pool:
            for result in pool.map(_run_without_progress, cases):
                results.append(result)
                progress.advance(task)
    return results


def _run_without_progress(case: SimulateOptions) -> Result:
    return _run(case, progress_bar(is_shown=False))


def _run(case: SimulateOptions, progress: Progress) -> Result:
    try:
        return run_simulation(case, progress)
    except SpecError:
        raise
    except CastorError as error:
        raise CastorError(f"{case.policy}, seed {case.seed}: {error}") from None


def _is_shown(standing: PolicyFigures, name: str) -> bool:
    figure = standing.figures.get(name)
    return figure is not None and (name != "cost_usd" or figure.value.mean > 0)


def _figure_text(name: str, standing: PolicyFigures, is_first: bool) -> str:
    figure = standing.figures.get(name)
    if figure is None:
        return "-"
    words = _with_interval(figure.value, _formatter(name))
    if is_first or figure.ratio is None:
        return words
    return f"{words}\nx{_with_interval(figure.ratio, '{:.2f}'.format)}"


def _with_interval(estimate: Estimate, format_value: Callable[[float], str]) -> str:
    if estimate.half_width is None:
        return format_value(estimate.mean)
    return f"{format_value(estimate.mean)} ± {format_value(estimate.half_width)}"


def _formatter(name: str) -> Callable[[float], str]:
    if name.endswith("_s"):
        return lambda seconds: f"{number(seconds)} s"
    if name == "cost_usd":
        return money
    return share if name == "unfair_share" else number
