"""`castor compare`: one workload under several policies, at several seeds."""

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
from autoscaler.cli.simulate_options import SimulateOptions
from autoscaler.cli.simulation import progress_bar, run_simulation
from autoscaler.cli.tables import fits, money, number, share, words_table
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.simulator.comparison import Estimate, Standing, compare
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
    """Policies, the first of which is the measure, and how many seeds in how many processes."""

    policies: Sequence[str]
    seeds: int = 5
    workers: int = 1

    def check(self) -> None:
        """Make sure that there is something to compare.

        Raises:
            SpecError: there is not; it names the option.
        """
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise SpecError("name each policy once, as marginal,pollux", "--policies")
        for option, value in (("--seeds", self.seeds), ("--workers", self.workers)):
            if value < 1:
                raise SpecError(f"{value} must be at least 1", option)


def run_comparison(options: SimulateOptions, over: CompareOptions) -> tuple[Standing, ...]:
    """Run every policy at every seed, with a bar of the runs.

    Raises:
        SpecError: what is to be simulated is wrong; the message names file and field.
        CastorError: a run did not end; the message names policy and seed.
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


def write_comparison(standings: Sequence[Standing], path: Path) -> None:
    """Keep all figures and all totals as JSON.

    Raises:
        SpecError: the file can't be written.
    """
    write_json({"policies": [asdict(each) for each in standings]}, path)


class ComparisonTable:
    """Mean and 95 % confidence interval of each figure, and how many times the first policy's.

    A row a policy or, where that is too wide, a row a figure and as many policies as there is
    room for.
    """

    def __init__(self, standings: Sequence[Standing]) -> None:
        self._standings = standings
        self._shown = [
            name for name in _COLUMNS if any(_is_told(each, name) for each in standings)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The widest that fits."""
        table = self._by_policy()
        if fits(table, console, options):
            yield table
            return
        for count in range(len(self._standings), 0, -1):
            tables = [
                self._by_figure(range(start, min(start + count, len(self._standings))))
                for start in range(0, len(self._standings), count)
            ]
            if all(fits(each, console, options) for each in tables):
                break
        for place, each in enumerate(tables):
            if place:
                yield Text()
            yield each

    def _by_policy(self) -> Table:
        headings = [_COLUMNS[name] for name in self._shown]
        table = words_table("policy", *headings, right=headings)
        for place, each in enumerate(self._standings):
            table.add_row(each.policy, *(self._cell(place, name) for name in self._shown))
        return table

    def _by_figure(self, places: range) -> Table:
        policies = [self._standings[place].policy for place in places]
        table = words_table("", *policies, right=policies)
        for name in self._shown:
            table.add_row(_COLUMNS[name], *(self._cell(place, name) for place in places))
        return table

    def _cell(self, place: int, name: str) -> str:
        return _cell(name, self._standings[place], is_first=not place)


def print_comparison(standings: Sequence[Standing]) -> None:
    """All figures of all policies."""
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
            for result in pool.map(_run_unseen, cases):
                results.append(result)
                progress.advance(task)
    return results


def _run_unseen(case: SimulateOptions) -> Result:
    return _run(case, progress_bar(is_shown=False))


def _run(case: SimulateOptions, progress: Progress) -> Result:
    try:
        return run_simulation(case, progress)
    except SpecError:
        raise
    except CastorError as error:
        raise CastorError(f"{case.policy}, seed {case.seed}: {error}") from None


def _is_told(standing: Standing, name: str) -> bool:
    figure = standing.figures.get(name)
    return figure is not None and (name != "cost_usd" or figure.value.mean > 0)


def _cell(name: str, standing: Standing, is_first: bool) -> str:
    figure = standing.figures.get(name)
    if figure is None:
        return "-"
    words = _with_interval(figure.value, _unit(name))
    if is_first or figure.ratio is None:
        return words
    return f"{words}\nx{_with_interval(figure.ratio, '{:.2f}'.format)}"


def _with_interval(estimate: Estimate, word: Callable[[float], str]) -> str:
    if estimate.half_width is None:
        return word(estimate.mean)
    return f"{word(estimate.mean)} ± {word(estimate.half_width)}"


def _unit(name: str) -> Callable[[float], str]:
    if name.endswith("_s"):
        return lambda seconds: f"{number(seconds)} s"
    if name == "cost_usd":
        return money
    return share if name == "unfair_share" else number
