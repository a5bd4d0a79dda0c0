"""Result and tables of `castor replay`: the journal of a run under another policy."""

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
from autoscaler.controller.predict.replay import Choice, Moment, Replay, replay
from autoscaler.domain.errors import SpecError
from autoscaler.state_directory import DATABASE_FILE, store_url_of
from autoscaler.store.opening import open_to_read

_MEANING = (
    "Each decision of {policy} starts from the recorded state of the run. A run under {policy} "
    "would have diverged at the first difference."
)


def replay_of(
    store_url: str | None, state: Path, policy: str, job: str | None, last: int | None
) -> Replay:
    """Replay the decisions of a run under another policy.

    Args:
        store_url: URL of the run's database; None: SQLite in `state`.
        state: state directory of the run's controller.
        policy: name of the other policy.
        job: name or id of the only job to replay; None: all jobs.
        last: number of latest decisions to replay; None: all.

    Raises:
        SpecError: there is no run or no such policy, or the policy can't plan this run.
        StoreError: the store can't be opened.
    """
    database = state / DATABASE_FILE
    if store_url is None and not database.is_file():
        raise SpecError(
            f"{database} is missing: name the state directory of a run, or its --store", "--state"
        )
    store = open_to_read(store_url_of(state, store_url))
    try:
        return replay(store, policy, None if job is None else store.jobs.find(job).id, last)
    finally:
        store.close()


def write_replay(replay: Replay, path: Path) -> None:
    """Write all moments to a JSON file.

    Raises:
        SpecError: the file can't be written.
    """
    write_json(asdict(replay), path)


def print_replay(replay: Replay, everything: bool) -> None:
    """Print the moments that differ, or all if `everything`, and the means of each job."""
    if not replay.moments:
        print_whole(Text("the journal has no decision with a recorded state"))
        return
    shown = [moment for moment in replay.moments if everything or not moment.is_same]
    same = sum(moment.is_same for moment in replay.moments)
    counted = f"{same} of {len(replay.moments)} decisions are the same"
    if replay.lost:
        counted += f"; {replay.lost} more have no recorded state any more"
    print_whole(
        Group(
            *((_moments_table(shown), Text()) if shown else ()),
            _means_table(replay),
            Text(),
            Text(counted),
            Text(_MEANING.format(policy=replay.policy), style="dim"),
        )
    )


def _moments_table(moments: Sequence[Moment]) -> Table:
    table = words_table("time", "job", "", "decision", wraps=("job", "decision"))
    for moment in moments:
        table.add_row(
            clock_time(moment.at_seconds), moment.job, "decided", _choice_words(moment.decided)
        )
        table.add_row("", "", "would", _choice_words(moment.would))
    return table


def _choice_words(choice: Choice) -> str:
    return f"{choice.action}: {choice.holding}; {choice.reason}"


def _means_table(result: Replay) -> Table:
    """Return a table of each job's mean price ($/h) and predicted goodput, under both policies."""
    right = ("decisions", "$/h\ndecided", "$/h\nwould", "goodput\ndecided", "goodput\nwould")
    first = "mean over a job's decisions"
    table = words_table(first, *right, wraps=(first,), right=right)
    for job in dict.fromkeys(moment.job for moment in result.moments):
        moments = [moment for moment in result.moments if moment.job == job]
        sides = [moment.decided for moment in moments], [moment.would for moment in moments]
        table.add_row(
            job,
            str(len(moments)),
            *(f"{fmean(choice.usd_per_hour for choice in side):.2f}" for side in sides),
            *(_mean_goodput(side) for side in sides),
        )
    return table


def _mean_goodput(choices: Sequence[Choice]) -> str:
    known = [choice.goodput for choice in choices if choice.goodput is not None]
    return f"{number(fmean(known))} ex/s" if known else "-"
