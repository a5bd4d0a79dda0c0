"""Fine-tuning of a tiny Llama by Transformers' Trainer: plain, or elastic with ELASTIC=1.

The process that writes puts the log into RESULT. Steps are slow until HURRY exists.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    EarlyStoppingCallback,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from autoscaler.integrations.transformers import ElasticTrainer

LENGTH, WORDS = 16, 64


class Pace(TrainerCallback):
    """Slow steps, and the numbers of the steps that this process has seen."""

    steps: list[int]

    def __init__(self) -> None:
        self.steps = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps.append(state.global_step)
        if not os.path.exists(os.environ["HURRY"]):
            time.sleep(0.1)


def sentences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Return sorted random words; a random number of the last labels is left out."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count, LENGTH), generator=generator).sort(1).values
    lengths = torch.randint(4, LENGTH + 1, (count, 1), generator=generator)
    labels = words.masked_fill(torch.arange(LENGTH) >= lengths, -100)
    return [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]


def main() -> None:
    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=LENGTH,
        )
    ).double()
    args = TrainingArguments(
        output_dir=os.environ["OUTPUT"],
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=int(os.environ["EPOCHS"]),
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=4,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        metric_for_best_model="loss",
        load_best_model_at_end=True,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    is_elastic = os.environ.get("ELASTIC") == "1"
    pace = Pace()
    trainer = (ElasticTrainer if is_elastic else Trainer)(
        model=model,
        args=args,
        train_dataset=sentences(128, 1),
        eval_dataset=sentences(32, 2),
        callbacks=[pace, EarlyStoppingCallback(early_stopping_patience=3)],
    )
    output = trainer.train()
    trainer.save_model(os.environ["OUTPUT"] + "/final")
    if trainer.is_world_process_zero():
        weights = [float(parameter.sum()) for parameter in model.parameters()]
        result = {
            "history": trainer.state.log_history,
            "weights": weights,
            "steps": pace.steps,
            "global_step": output.global_step,
            "best": trainer.state.best_metric,
        }
        Path(os.environ["RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
