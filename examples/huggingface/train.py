"""Fine-tuning script for Transformers' Trainer, on the documentation that Python ships.

The import of the Trainer is all that differs from a script for `transformers.Trainer`. The model
is made from its configuration and the tokens are bytes, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

from autoscaler.integrations.transformers import ElasticTrainer as Trainer

LENGTH = 64


class Blocks(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Blocks of bytes, each of which the model learns to continue."""

    def __init__(self, text: bytes) -> None:
        self.blocks = torch.tensor(list(text)).view(-1, LENGTH)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--examples", type=int, default=1024)
    parser.add_argument("--output", default="output")
    arguments = parser.parse_args()
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=LENGTH,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    text = "".join(topics[name] for name in sorted(topics)).encode()
    train_bytes, test_bytes = arguments.examples * LENGTH, 128 * LENGTH
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=arguments.output,
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=16,
            logging_steps=8,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=Blocks(text[:train_bytes]),
        eval_dataset=Blocks(text[-test_bytes:]),
    )
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(arguments.output)
    if trainer.is_world_process_zero():
        print(f"perplexity {math.exp(loss):.2f}", flush=True)


if __name__ == "__main__":
    main()
