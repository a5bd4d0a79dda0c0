"""Study whose objective trains with Transformers' Trainer. Interrupted trials are resumed.

pip install transformers accelerate
python transformers_study.py
"""

from __future__ import annotations

import argparse
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import optuna
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import hpo

EPOCHS = 3
WORDS, LENGTH = 64, 12


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random sentences, labelled by whether the first word is among the first half of words."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(WORDS, (count, LENGTH), generator=generator)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = self.words[index]
        return {"input_ids": words, "labels": (words[0] < WORDS // 2).long()}


class StopAfterEpoch(TrainerCallback):
    """Callback that stops the Trainer after each epoch; its schedule still covers all epochs."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, **other: Any) -> None:
        control.should_training_stop = True


def objective(trial: optuna.Trial) -> float:
    """Train for three epochs, report the loss after each, and return the last loss."""
    torch.manual_seed(trial.number)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=trial.suggest_int("intermediate_size", 16, 128, log=True),
            max_position_embeddings=LENGTH,
        )
    )
    learning_rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
    # Castor saves the Trainer's checkpoint as state: a tar file in memory.
    saved = {"checkpoint": b""}
    loss = float("inf")
    for epoch in hpo.epochs(trial, EPOCHS, {"trainer": saved}):
        directory = Path("checkpoints")
        shutil.rmtree(directory, ignore_errors=True)
        if epoch:
            unpack(saved["checkpoint"], directory)
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=str(directory),
                num_train_epochs=EPOCHS,
                learning_rate=learning_rate,
                per_device_train_batch_size=32,
                save_strategy="epoch",
                eval_strategy="epoch",
                report_to=[],
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            ),
            train_dataset=Sentences(512, 1),
            eval_dataset=Sentences(128, 2),
            callbacks=[StopAfterEpoch()],
        )
        trainer.train(resume_from_checkpoint=bool(epoch))
        saved["checkpoint"] = pack(directory)
        loss = float(trainer.evaluate()["eval_loss"])
        trial.report(loss, epoch + 1)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


def pack(directory: Path) -> bytes:
    """Return a directory as a tar file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(directory, arcname=".")
    return content.getvalue()


def unpack(content: bytes, directory: Path) -> None:
    """Write the files of a tar file of `pack` to a directory."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=6)
    study = optuna.create_study(
        study_name="transformers",
        storage="sqlite:///transformers.db",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    hpo.optimize(study, objective, n_trials=parser.parse_args().trials)
    print(f"best: {study.best_value:.4f} with {study.best_params}")
