"""`castor replay`: the journal of a run under another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.output import write_json
from autoscaler.cli.tables import clock_time, number, words_table
from autoscaler.controller.replaying import Choice, Moment, Replay, replay
from autoscaler.domain.errors import SpecError
from autoscaler.store.opening import open_store

_MEANING = (
    "What {policy} would have done at each moment that the run came to, not what would have "
    "followed: after the first difference its own run would have gone another way."
)


def replay_of(
    store_url: str | None, state: Path, policy: str, job: str | None, last: int | None
) -> Replay:
    """The replay of the run whose store this is, or that is kept in `state`.

    Raises:
        SpecError: there is no run, no such policy, or it does not plan for what the run had.
        StoreError: the store can't be opened.
    """
    database = state / "castor.db"
    if store_url is None and not database.is_file():
        raise SpecError(
            f"{database} is missing: name the state of a run, or its --store", "--state"
        )
    store = open_store(store_url or f"sqlite:///{database}")
    try:
        return replay(store, policy, None if job is None else store.jobs.find(job).id, last)
    finally:
        store.close()


def write_replay(found: Replay, path: Path) -> None:
    """Keep all moments as JSON.

    Raises:
        SpecError: the file can't be written.
    """
    write_json(asdict(found), path)


def print_replay(found: Replay, everything: bool) -> None:
    """The moments at which the two differ, or all, and each job's means."""
    if not found.moments:
        print_whole(Text("the journal has no decision with its snapshot"))
        return
    shown = [each for each in found.moments if everything or not each.is_same]
    same = sum(each.is_same for each in found.moments)
    counted = f"{same} of {len(found.moments)} decisions are the same"
    if found.lost:
        counted += f"; of {found.lost} more the snapshot is not kept any more"
    print_whole(
        Group(
            *((_moments(shown), Text()) if shown else ()),
            _means(found),
            Text(),
            Text(counted),
            Text(_MEANING.format(policy=found.policy), style="dim"),
        )
    )


def _moments(moments: Sequence[Moment]) -> Table:
    table = words_table("time", "job", "", "what, and why", wraps=("job", "what, and why"))
    for each in moments:
        table.add_row(clock_time(each.at_seconds), each.job, "decided", _words(each.decided))
        table.add_row("", "", "would", _words(each.would))
    return table


def _words(choice: Choice) -> str:
    return f"{choice.action}: {choice.holding}; {choice.reason}"


def _means(found: Replay) -> Table:
    """Over the moments of each job: what is paid an hour, and what the model expects of it."""
    right = ("decisions", "$/h\ndecided", "$/h\nwould", "goodput\ndecided", "goodput\nwould")
    first = "mean over a job's decisions"
    table = words_table(first, *right, wraps=(first,), right=right)
    for job in dict.fromkeys(each.job for each in found.moments):
        own = [each for each in found.moments if each.job == job]
        sides = [each.decided for each in own], [each.would for each in own]
        table.add_row(
            job,
            str(len(own)),
            *(f"{fmean(choice.usd_per_hour for choice in side):.2f}" for side in sides),
            *(_mean_goodput(side) for side in sides),
        )
    return table


def _mean_goodput(choices: Sequence[Choice]) -> str:
    known = [choice.goodput for choice in choices if choice.goodput is not None]
    return f"{number(fmean(known))} ex/s" if known else "-"
