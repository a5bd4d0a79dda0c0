"""Study of a small character-level GPT, with trials on one instance or several.

`python study.py [TEXT]` runs the trials on this machine's cores, or on instances of the
controller that CASTOR_URL names. Trials are resized while they run, with the same result.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from pathlib import Path

import optuna
import torch
from torch import nn
from torch.utils.data import Subset, default_collate
from train import CharacterGPT, Windows, documentation

import hpo
from autoscaler.domain.objective import Objective, Preference
from autoscaler.training import session

EPOCHS = 6
CONTEXT = 32
EXAMPLES = 2048


def objective_on(
    text: str, instances: tuple[int, int]
) -> Callable[[optuna.trial.BaseTrial], float]:
    """Return an objective: the validation loss of a network that predicts the next character.

    Args:
        text: text for training and validation.
        instances: smallest and largest number of instances of a trial.
    """

    @hpo.distributed(instances, batch=32)
    def objective(trial: optuna.trial.BaseTrial) -> float:
        rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
        width = trial.suggest_categorical("width", [16, 32])
        torch.manual_seed(trial.number)
        windows = Windows(text, CONTEXT, EXAMPLES + EXAMPLES // 8)
        train, others = Subset(windows, range(EXAMPLES)), range(EXAMPLES, len(windows))
        validation = default_collate([windows[index] for index in others])
        model = CharacterGPT(len(windows.characters), CONTEXT, width, layers=2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        loss_function = nn.CrossEntropyLoss()
        score = float("inf")
        with session(model, optimizer, train, batch_size=32) as job:
            for epoch in job.epochs(EPOCHS):
                for inputs, targets in job.batches():
                    loss = loss_function(job.model(inputs).flatten(0, 1), targets.flatten())
                    job.step(loss)
                with torch.no_grad():
                    predicted = model(validation[0]).flatten(0, 1)
                    score = loss_function(predicted, validation[1].flatten()).item()
                trial.report(score, epoch + 1)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return score

    return objective


def main() -> None:
    """Run the study, and print the best trial."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", type=Path, default=os.environ.get("TEXT"))
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--storage", default="sqlite:///chargpt.db")
    parser.add_argument(
        "--instances", type=int, nargs=2, default=(1, 4), help="minimum and maximum"
    )
    parser.add_argument("--offers", nargs="*", help="allowed offers")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    text = Path(arguments.text).read_text() if arguments.text else documentation()
    study = optuna.create_study(
        study_name="chargpt",
        storage=arguments.storage,
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=3),
        load_if_exists=True,
    )
    hpo.optimize(
        study,
        objective_on(text, tuple(arguments.instances)),
        n_trials=arguments.trials,
        n_jobs=1,
        goal=Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=3.0),
        offers=arguments.offers,
        show_progress_bar=True,
    )
    best = study.best_trial
    print(f"best of {len(study.trials)}: {best.value:.3f} with {best.params}")


if __name__ == "__main__":
    main()
