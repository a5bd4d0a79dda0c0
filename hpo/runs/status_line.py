"""How a study stands, below its progress bar, for whoever watches a terminal."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import optuna
from tqdm.auto import tqdm

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.spec.quantities import format_duration, format_money
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyView
from hpo.driver.trial_server import running_attachments

_log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 2.0


@contextmanager
def standing_beside(bar: tqdm, line: StudyClient, clock: Clock) -> Iterator[None]:
    """A line below the bar that is kept up to date while this lasts, if somebody sees it.

    A controller that is away leaves it as it is. The connection is closed at the end.
    """
    if bar.disable or not bar.fp.isatty():
        line.close()
        yield
        return
    is_over = threading.Event()
    below = tqdm(total=0, bar_format="{desc}", position=1, leave=False)

    def keep() -> None:
        while not is_over.wait(EVERY_SECONDS):
            try:
                below.set_description_str(standing_words(line.view(), clock.now()))
            except CastorError as error:
                _log.debug("no news of the study: %s", error)

    watcher = threading.Thread(target=keep, name="standing", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join(EVERY_SECONDS)
        below.close()
        line.close()


def trials_to_come(study: optuna.Study, to_begin: int | None) -> int | None:
    """How many trials this run is to end: those that it begins, and those that were left open.

    None: as many as there are until it is stopped.
    """
    return None if to_begin is None else to_begin + len(running_attachments(study))


def standing_words(view: StudyView, now_seconds: float) -> str:
    """``best 0.98, 2 run on 2 x local-small, $0.02 of $1 ($0.09/h), 12m left``."""
    runs = [record for record in view.trials if not record.stands.has_ended]
    held = Counter[str]()
    for record in runs:
        if record.trained is not None:
            held[record.trained.offer] += record.trained.instances
    on = " + ".join(f"{count} x {offer}" for offer, count in sorted(held.items()))
    terms = view.terms
    words = [] if terms is None or terms.best is None else [f"best {terms.best:.6g}"]
    words.append(f"{len(runs)} run" + (f" on {on}" if on else ""))
    budget = None if terms is None else terms.objective.most_usd
    of = "" if budget is None else f" of {format_money(budget)}"
    spent = "?" if view.spent_usd is None else format_money(round(view.spent_usd, 4))
    words.append(f"{spent}{of} ({format_money(view.usd_per_hour)}/h)")
    deadline = None if terms is None else terms.objective.deadline_seconds
    if deadline is not None:
        left_seconds = deadline - now_seconds
        late = f"{format_duration(-left_seconds)} late"
        words.append(f"{format_duration(left_seconds)} left" if left_seconds > 0 else late)
    if view.trouble is not None:
        words.append(f"trouble: {view.trouble}")
    return ", ".join(words)
