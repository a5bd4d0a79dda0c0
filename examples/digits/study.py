"""Study of a small network on digits: learning rate, width and batch size, successive halving.

`python study.py` runs the trials on this machine's cores, or on instances of the controller that
CASTOR_URL names. The same command resumes the study. `optuna-dashboard` reads the same file.
"""

from __future__ import annotations

import argparse
import logging

import optuna
import torch
from torch import nn
from torch.utils.data import DataLoader
from train import accuracy, load, network

import hpo

EPOCHS = 9


def objective(trial: optuna.trial.BaseTrial) -> float:
    """Train one network, report its accuracy after each epoch, and return the last accuracy."""
    rate = trial.suggest_float("learning_rate", 1e-3, 0.3, log=True)
    width = trial.suggest_int("width", 4, 16, step=4)
    batch = trial.suggest_categorical("batch_size", [16, 32, 64])
    torch.manual_seed(trial.number)
    train, test = load()
    model = network(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    score = 0.0
    for epoch in hpo.epochs(trial, EPOCHS, {"model": model, "optimizer": optimizer}):
        for images, labels in DataLoader(train, batch_size=batch, shuffle=True):
            optimizer.zero_grad()
            loss_function(model(images), labels).backward()
            optimizer.step()
        score = accuracy(model, test)
        trial.report(score, epoch + 1)
        if trial.should_prune():
            raise optuna.TrialPruned
    return score


def main() -> None:
    """Run the study, and print the best trial."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--storage", default="sqlite:///digits.db")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    study = optuna.create_study(
        study_name="digits",
        storage=arguments.storage,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=3),
        load_if_exists=True,
    )
    hpo.optimize(study, objective, n_trials=arguments.trials, show_progress_bar=True)
    best = study.best_trial
    print(f"best of {len(study.trials)}: {best.value:.3f} with {best.params}")


if __name__ == "__main__":
    main()
