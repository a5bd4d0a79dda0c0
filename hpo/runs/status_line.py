"""Status line of a study below its progress bar."""

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
from autoscaler.notebook import LiveOutput, notebook_display, shown_text
from autoscaler.spec.quantities import format_duration, format_money
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyView
from hpo.driver.trial_server import running_trials

_log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 2.0


@contextmanager
def status_line(bar: tqdm, study_client: StudyClient, clock: Clock) -> Iterator[None]:
    """Show a status line below the bar while the context lasts.

    The bar must be on a terminal or in a notebook. The line stays unchanged while the controller
    is unavailable. The client is closed at the end.
    """
    is_in_notebook = notebook_display() is not None
    if bar.disable or not (is_in_notebook or bar.fp.isatty()):
        study_client.close()
        yield
        return
    is_over = threading.Event()
    output = LiveOutput() if is_in_notebook else None
    status_bar = tqdm(
        total=0, bar_format="{desc}", position=1, leave=False, disable=is_in_notebook
    )

    def show(view: StudyView) -> None:
        text = status_text(view, clock.now())
        if output is None:
            status_bar.set_description_str(text)
        else:
            output.show(shown_text(view.name, text))

    def update() -> None:
        while not is_over.wait(REFRESH_SECONDS):
            try:
                show(study_client.view())
            except CastorError as error:
                _log.debug("no news of the study: %s", error)

    updater = threading.Thread(target=update, name="standing", daemon=True)
    updater.start()
    try:
        yield
    finally:
        is_over.set()
        updater.join(REFRESH_SECONDS)
        status_bar.close()
        study_client.close()


def count_trials_to_end(study: optuna.Study, to_begin: int | None) -> int | None:
    """Return how many trials this run ends: new trials and open ones; None for no limit."""
    return None if to_begin is None else to_begin + len(running_trials(study))


def status_text(view: StudyView, now_seconds: float) -> str:
    """Return the status of a study in one line.

    Example: ``best 0.98, 2 run on 2 x local-small, $0.02 of $1 ($0.09/h), 12m left``.
    """
    running = [record for record in view.trials if not record.stands.has_ended]
    instances_by_offer = Counter[str]()
    for record in running:
        if record.trained is not None:
            instances_by_offer[record.trained.offer] += record.trained.instances
    allocation = " + ".join(
        f"{count} x {offer}" for offer, count in sorted(instances_by_offer.items())
    )
    terms = view.terms
    parts = [] if terms is None or terms.best is None else [f"best {terms.best:.6g}"]
    parts.append(f"{len(running)} run" + (f" on {allocation}" if allocation else ""))
    budget = None if terms is None else terms.objective.most_usd
    budget_text = "" if budget is None else f" of {format_money(budget)}"
    spent_text = "?" if view.spent_usd is None else format_money(round(view.spent_usd, 4))
    parts.append(f"{spent_text}{budget_text} ({format_money(view.usd_per_hour)}/h)")
    deadline = None if terms is None else terms.objective.deadline_seconds
    if deadline is not None:
        left_seconds = deadline - now_seconds
        late_text = f"{format_duration(-left_seconds)} late"
        parts.append(f"{format_duration(left_seconds)} left" if left_seconds > 0 else late_text)
    if view.trouble is not None:
        parts.append(f"trouble: {view.trouble}")
    return ", ".join(parts)
