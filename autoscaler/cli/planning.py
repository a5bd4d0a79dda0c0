"""`castor plan`: what a job would come to, from a running controller or from files alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.simulated_market import equipment_of
from autoscaler.cli.submission import require_bundle
from autoscaler.cli.tables import money, number, words_table
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.service.plans import plan_ahead
from autoscaler.simulator.profiles import read_profiles
from autoscaler.simulator.recollection import recollection
from autoscaler.spec.job_file import load_job
from autoscaler.spec.objective_text import default_budget_words, describe_objective
from autoscaler.spec.offers_file import OffersFile, load_offers
from autoscaler.spec.quantities import format_duration, format_money
from autoscaler.wire.connection import connect
from autoscaler.wire.plan_messages import PlanView, ProspectView

_HERE, _INSTEAD = "<- your objective", "<- instead"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What `castor plan` was told; without `offers` a running controller is asked."""

    job: Path
    offers: Path | None = None
    profiles: Sequence[Path] = ()
    application: str | None = None


def plan_of(options: PlanOptions, now_seconds: float) -> PlanView:
    """What the job would come to if it were submitted now.

    Raises:
        SpecError: a file can't be used, or the job's files can't be packed.
        Unavailable: no controller answers, and no offers were given.
    """
    job_file = load_job(options.job, now_seconds)
    require_bundle(job_file)
    spec = job_file.spec
    if options.offers is None:
        if options.profiles or options.application:
            raise SpecError(
                "goes with --offers, which says what is profiled as what", "--profiles"
            )
        return _ask(spec)
    offers = load_offers(options.offers, now_seconds)
    memory = _memory(options, spec, offers)
    return plan_ahead(spec, offers.offers, offers.limits, memory, now_seconds)


def print_plan(view: PlanView, now_seconds: float) -> None:
    """Print the frontier as a table, and where the objective lands on it.

    Where nobody knows how much there is to do, print prices and the first decision.
    """
    if view.unknown is not None:
        _print_rates(view, now_seconds)
        return
    parts: list[RenderableType] = [
        Text(f"{view.job}: {objective_words(view, now_seconds)}", style="bold"),
        Text(view.known, style="dim"),
        Text(),
        _table(view),
        Text(),
    ]
    if view.shortfall is not None:
        parts.append(Text(view.shortfall, style="red"))
    elif view.chance is not None:
        parts.append(Text(f"kept in {view.chance:.0%} of draws"))
    if view.chosen is not None and view.chosen.seconds_band and view.chosen.usd_band:
        parts.append(Text(_band_words(view.chosen.seconds_band, view.chosen.usd_band)))
    parts.append(Text(f"first decision: {view.decision}"))
    parts += _default_budget(view)
    print_whole(Group(*parts))


def _print_rates(view: PlanView, now_seconds: float) -> None:
    right = ("devices", "price", "useful\nexamples/s")
    table = words_table("allocation", *right, wraps=("allocation",), right=right)
    for rate in view.rates:
        speed = rate.examples_per_second
        table.add_row(
            _words(rate.allocation.instances, rate.allocation.offer),
            str(rate.allocation.devices),
            f"{money(rate.usd_per_hour)}/h",
            "not measured" if speed is None else number(speed),
        )
    heading = f"{view.job}: {objective_words(view, now_seconds)}"
    known, decision = Text(view.known, style="dim"), Text(f"first decision: {view.decision}")
    heading_line = Text(heading, style="bold")
    print_whole(
        Group(
            heading_line,
            known,
            Text(),
            table,
            Text(),
            decision,
            *_default_budget(view),
            Text(view.unknown or ""),
        )
    )


def _default_budget(view: PlanView) -> list[RenderableType]:
    """Return the line of the default budget, if the objective has one."""
    words = default_budget_words(view.objective)
    return [] if words is None else [Text(words)]


def _band_words(seconds: tuple[float, float], usd: tuple[float, float]) -> str:
    times = " to ".join(format_duration(each) for each in seconds)
    return f"9 in 10 such jobs take {times} and cost {money(usd[0])} to {money(usd[1])}"


def allocation_words(prospect: ProspectView) -> str:
    """``2 x g5.xlarge``, or the two of a sequence with their shares of the work."""
    if prospect.first == prospect.then:
        return _words(prospect.first.instances, prospect.first.offer)
    first, then = (_words(each.instances, each.offer) for each in (prospect.first, prospect.then))
    return f"{first} for {prospect.first_share:.0%}, then {then}"


def _words(instances: int, offer: str) -> str:
    return f"{instances} x {offer}"


def _ask(spec: JobSpec) -> PlanView:
    try:
        return connect().plan(spec)
    except Unavailable as error:
        raise Unavailable(f"{error}; or say what can be bought: --offers FILE") from None


def _memory(options: PlanOptions, spec: JobSpec, offers: OffersFile) -> ProgramMemory | None:
    if not options.profiles:
        return None
    profiles = read_profiles(*options.profiles)
    name = options.application or spec.program_name
    if name not in profiles:
        message = f"{name!r} has no profile: there are {', '.join(sorted(profiles))}"
        raise SpecError(message, "--application")
    equipment = equipment_of(offers).values()
    profile = profiles[name]
    if not any(each.profile_kind in profile.kinds for each in equipment):
        raise SpecError(
            f"{name} was profiled on {', '.join(sorted(profile.kinds))} and nothing of that is "
            "offered: say which of these an offer's devices are (profile: KIND)",
            "offers",
        )
    return recollection(profile, equipment, spec.batch)


def objective_words(view: PlanView, now_seconds: float) -> str:
    """The objective and, where it is that alone, the value of time that it means."""
    asked = view.objective
    words = describe_objective(asked, now_seconds)
    if asked.deadline_seconds is not None or asked.budget_usd is not None:
        return words
    if asked.value_of_time_usd_per_hour is not None:
        return words
    return f"{words}: value of time {format_money(round(view.value_of_time_usd_per_hour, 2))}/h"


def is_chosen(row: ProspectView, view: PlanView) -> bool:
    """Whether the objective lands there."""
    chosen = view.chosen
    return chosen is not None and (row.first, row.then) == (chosen.first, chosen.then)


def _table(view: PlanView) -> Table:
    # Two headings are the same but for a space: columns are told apart by them.
    times = ("value of\ntime from", "median\ntime", "90 %\nwithin ")
    right = ("devices", *times, "median\ncost", "90 %\nwithin")
    table = words_table("allocation", *right, wraps=("allocation",), right=right)
    rows = list(view.frontier)
    if view.chosen is not None and not any(is_chosen(row, view) for row in rows):
        rows.append(view.chosen)
    mark = _HERE if view.shortfall is None else _INSTEAD
    for row in rows:
        _add(table, row, mark if is_chosen(row, view) else "")
    return table


def _add(table: Table, row: ProspectView, mark: str) -> None:
    begins = row.from_value_of_time_usd_per_hour
    devices = dict.fromkeys(each.devices for each in (row.first, row.then))
    marks = [mark] if mark else []
    if not row.measured:
        marks.append("not measured")
    table.add_row(
        "\n".join((allocation_words(row), *marks)),
        ", ".join(map(str, devices)),
        "" if begins is None else f"${number(begins)}/h",
        format_duration(row.seconds),
        format_duration(row.seconds_90),
        money(row.usd),
        money(row.usd_90),
        style="bold" if mark else "",
    )
