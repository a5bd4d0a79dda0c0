"""Examples in the help of commands that have several options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from typer import Typer

EXAMPLES: Final[Mapping[str, str]] = {
    "logs": "castor logs digits -f --tail 20",
    "fetch": "castor fetch digits --to results --checkpoint",
    "set": "castor set digits objective=deadline=2h max=4 --dry-run",
    "what-if": "castor what-if digits --deadline 4h --budget 20",
    "costs": "castor costs digits --counterfactual",
    "resume": "castor resume digits objective=budget=20 max=4 --wait",
    "invite": "castor invite ada --role submitter --team nlp --expires 30d",
    "serve": "castor serve --pools pools.json --fleet-usd 500 --job-usd 50",
    "backup": "castor backup castor.tar --state /var/lib/castor --logs",
    "restore": "castor restore castor.tar --state /var/lib/castor",
    "plan": "castor plan job.yaml --offers offers.yaml --profiles profiles --plot plan.png",
    "simulate": "castor simulate --workload jobs.csv --profiles profiles --offers offers.yaml",
    "compare": "castor compare --workload jobs.csv --profiles profiles --cluster pool.yaml "
    "--policies marginal,pollux --seeds 2",
    "replay": "castor replay --policy pollux --job digits --last 20",
    "init": "castor init aws --gpu L4,H100:8 --max-instances 4 --fleet-usd 500",
    "check": "castor check pools.json --account",
    "buy": "castor buy pools.json --type p5.48xlarge --instances 2 --days 3",
    "reconcile": "castor reconcile prod --from 2026-11-01 --to 2026-11-14 --keep",
    "demo": "castor demo --devices 2 --no-browser",
    "study plan": "castor study plan study.yaml --trials 50 --step-seconds 30",
    "budget set": "castor budget set team:nlp --month 500 --zone Europe/Berlin",
    "token create": "castor token create ci --service --role submitter --expires 30d",
}


def add_examples(app: Typer, words: tuple[str, ...] = ()) -> None:
    """Add the examples to the help of an application's commands."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").replace("_", "-")
        example = EXAMPLES.get(" ".join((*words, name)))
        if example is not None:
            command.epilog = f"Example: {example}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance, (*words, str(group.name)))
