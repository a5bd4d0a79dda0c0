"""Options that can't be elastic are refused by name before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.ones(8, 4), torch.ones(8, 1))


@pytest.fixture
def bert() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=8,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    return transformers.BertForSequenceClassification(config)


EXAMPLES = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor(1)} for _ in range(8)]


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"train_sampling_strategy": "batch_rebalance"}, "batch_rebalance"),
        ({"resume_from_checkpoint": "x"}, "resume_from_checkpoint"),
        ({"include_num_input_tokens_seen": "all"}, "include_num_input_tokens_seen"),
        ({"neftune_noise_alpha": 0.1}, "neftune_noise_alpha"),
        ({"optim": "lomo"}, "optim=lomo"),
        ({"accelerator_config": {"split_batches": True}}, "accelerator_config"),
        (
            {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
            "lr_scheduler_type",
        ),
    ],
)
def test_options_of_transformers(
    option: dict[str, Any], match: str, bert: Any, tmp_path: Path
) -> None:
    from transformers import TrainingArguments

    from autoscaler.integrations.transformers import ElasticTrainer

    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], **option)
    with pytest.raises(ValueError, match=match) as caught:
        ElasticTrainer(bert, args, train_dataset=EXAMPLES)
    assert "\n" not in str(caught.value)


def test_calls_of_transformers(bert: Any, tmp_path: Path) -> None:
    from transformers import TrainerCallback, TrainingArguments

    from autoscaler.integrations.transformers import ElasticTrainer

    class EndEpoch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_epoch_stop = True

    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], save_strategy="no")
    trainer = ElasticTrainer(bert, args, train_dataset=EXAMPLES)
    with pytest.raises(ValueError, match="resume_from_checkpoint=True"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="hyperparameter_search"):
        trainer.hyperparameter_search()
    with pytest.raises(ValueError, match="train_dataset"):
        ElasticTrainer(bert, args).train()
    with pytest.raises(ValueError, match="should_epoch_stop"):
        ElasticTrainer(bert, args, train_dataset=EXAMPLES, callbacks=[EndEpoch()]).train()


@pytest.mark.parametrize(
    ("match", "module", "options"),
    [
        ("max_epochs=-1", "Plain", {"max_epochs": -1}),
        ("limit_train_batches", "Plain", {"limit_train_batches": 1}),
        (
            "gradient_clip_algorithm",
            "Plain",
            {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"},
        ),
        ("callback Timer", "Plain", {"max_time": "00:01:00:00"}),
        ("automatic_optimization=False", "Manual", {}),
        ("Backward.backward", "Backward", {}),
        ("Gradients.on_before_optimizer_step", "Gradients", {}),
        ("ReduceLROnPlateau", "Plateau", {}),
        ("several are given", "Plain", {"loaders": 2}),
    ],
)
def test_options_of_lightning(match: str, module: str, options: dict[str, Any]) -> None:
    lightning = pytest.importorskip("lightning")
    from autoscaler.integrations.lightning import ElasticStrategy
    from tests.integrations import lightning_modules

    loaders = [DataLoader(DATA, batch_size=4) for _ in range(options.pop("loaders", 1))]
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    chosen = {"max_epochs": 1, "accelerator": "cpu", "strategy": ElasticStrategy(), **options}
    trainer = lightning.Trainer(**quiet, **chosen)
    with pytest.raises(ValueError, match=match) as caught:
        trainer.fit(getattr(lightning_modules, module)(), loaders if loaders[1:] else loaders[0])
    assert "\n" not in str(caught.value)


def test_options_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")

    from autoscaler.integrations.accelerate import ElasticAccelerator

    def data(**options: Any) -> Any:
        return accelerate.DataLoaderConfiguration(**options)

    with pytest.raises(ValueError, match="split_batches"):
        ElasticAccelerator(cpu=True, dataloader_config=data(split_batches=True))
    with pytest.raises(ValueError, match="step_scheduler_with_optimizer"):
        ElasticAccelerator(cpu=True, step_scheduler_with_optimizer=False)
    accelerator = ElasticAccelerator(cpu=True)
    for call in (accelerator.save_state, accelerator.load_state):
        with pytest.raises(ValueError, match="leave it out"):
            call("x")
    with pytest.raises(ValueError, match="max_grad_norm=2"):
        accelerator.clip_grad_norm_([], 2.0)
    with pytest.raises(RuntimeError, match="prepare model, optimizer"):
        next(accelerator.epochs(1))
    with pytest.raises(RuntimeError, match="no session is open"):
        _ = accelerator.job
    accelerator.prepare(nn.Linear(4, 1))
    with pytest.raises(ValueError, match="several models"):
        accelerator.prepare(nn.Linear(4, 1))
