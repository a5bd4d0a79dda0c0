"""`castor new`: a job file from a script that is read and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.cli.new.run import write_job_file
from autoscaler.cli.new.script import ScriptKind, ScriptOption, read_script
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.spec.job_file import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def written(directory: Path, source: str, name: str = "train.py") -> JobSpec:
    """Return the job of the file that is written for a script."""
    script = directory / name
    script.write_text(source)
    write_job_file(script, None)
    return load_job(directory / "job.yaml", 0.0).spec


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("from autoscaler.training import session", ScriptKind.SESSION),
        (
            "from autoscaler.integrations.transformers import ElasticTrainer as Trainer",
            ScriptKind.INTEGRATION,
        ),
        ("from transformers import Seq2SeqTrainer\nSeq2SeqTrainer()", ScriptKind.TRANSFORMERS),
        ("import lightning as L\nL.Trainer()", ScriptKind.LIGHTNING),
        ("from accelerate import Accelerator\nAccelerator()", ScriptKind.ACCELERATE),
        ("import torch.distributed as dist\ndist.init_process_group()", ScriptKind.DISTRIBUTED),
        ("import torch\ntorch.save({}, 'a')", ScriptKind.PLAIN),
        ("print(1)", ScriptKind.PLAIN),
    ],
)
def test_the_kind_of_a_script(tmp_path: Path, source: str, kind: ScriptKind) -> None:
    assert read_script(source).kind is kind
    job = written(tmp_path, source)
    assert job.command == ("python", "train.py")
    assert (job.restart is not None) == (kind is ScriptKind.DISTRIBUTED)
    is_elastic = kind in (ScriptKind.SESSION, ScriptKind.INTEGRATION)
    assert job.instances.maximum == (4 if is_elastic else 1)


def test_options_and_batch_of_argparse(tmp_path: Path) -> None:
    source = """
import argparse
from autoscaler.training import session
parser = argparse.ArgumentParser()
parser.add_argument("corpus")
parser.add_argument("rest", nargs="*")
parser.add_argument("-d", "--data", required=True, help="x")
parser.add_argument("--batch-size", type=int, default=48)
parser.add_argument("--note", default="a\\nname: hostile")
parser.add_argument(unknown)
"""
    facts = read_script(source)
    assert facts.options == (
        ScriptOption("corpus", is_required=True),
        ScriptOption("rest"),
        ScriptOption("--data", is_required=True),
        ScriptOption("--batch-size", "48"),
        ScriptOption("--note", "a\nname: hostile"),
    )
    job = written(tmp_path, source)
    assert job.command == ("python", "train.py", "CORPUS", "--data", "DATA")
    assert job.batch.initial == 48
    assert job.name != "hostile"
    assert "# Replace the words in capitals." in (tmp_path / "job.yaml").read_text()


@pytest.mark.parametrize(
    ("source", "batch"),
    [
        ("loader = DataLoader(data, batch_size=32)", 32),
        ("BATCH_SIZE = 16", 16),
        ("TrainingArguments(per_device_train_batch_size=8)", 8),
        ("DataLoader(data, batch_size=arguments.batch)", None),
        ("batch_size = -1", None),
        ("batch_size = 10**99", None),
    ],
)
def test_literals_of_a_batch(source: str, batch: int | None) -> None:
    assert read_script(source).batch == batch


@pytest.mark.parametrize(
    "argument",
    [r'"--\ud800x"', r'"--a\nname: b"', r'"--\0"', r'"--\x1b[2J"', '"--"', f'"--{"x" * 5_000}"'],
    ids=["surrogate", "line", "NUL", "escape", "dashes", "long"],
)
def test_names_that_nobody_types_are_no_options(tmp_path: Path, argument: str) -> None:
    job = written(tmp_path, f"parser.add_argument({argument}, required=True)")
    assert job.command == ("python", "train.py")


def test_a_literal_may_be_larger_than_python_prints(tmp_path: Path) -> None:
    digits = "f" * 5_000
    source = f"batch_size = 0x{digits}\nparser.add_argument('--x', default=0x{digits})"
    written(tmp_path, source)
    assert read_script(source).batch is None
    assert read_script(f"batch_size = '{'9' * 5_000}'").batch is None


def test_a_script_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    source = "\ufefffrom autoscaler.training import session\nbatch_size = 8"
    assert written(tmp_path, source).batch.initial == 8


def test_a_refusal_leaves_no_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("".join(f"p.add_argument('--o{n}', required=True)\n" for n in range(600)))
    with pytest.raises(SpecError, match=r"train\.py: no job file can be made.*has 1,202 entries"):
        write_job_file(script, None)
    assert list(tmp_path.iterdir()) == [script]


def test_a_script_is_never_run(tmp_path: Path) -> None:
    written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)")
    assert not (tmp_path / "ran").exists()


def test_names_of_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "My Model_v2"
    folder.mkdir()
    assert written(folder, "print(1)").name == "my-model-v2"
    (folder / "job.yaml").unlink()
    assert written(folder, "print(1)", "Fine Tune.py").name == "fine-tune"


def test_a_file_elsewhere_packs_the_folder_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "train.py"
    script.write_text("print(1)")
    (tmp_path / "code" / "requirements.txt").write_text("numpy\n")
    write_job_file(script, tmp_path / "fast.yaml")
    job = load_job(tmp_path / "fast.yaml", 0.0)
    assert job.spec.setup == ("pip install -r requirements.txt",)
    assert job.working_directory.resolve() == script.parent


def test_nothing_is_replaced_and_nothing_wrong_is_written(tmp_path: Path) -> None:
    written(tmp_path, "print(1)")
    before = (tmp_path / "job.yaml").read_text()
    with pytest.raises(Conflict, match="name another file with --to"):
        write_job_file(tmp_path / "train.py", None)
    assert (tmp_path / "job.yaml").read_text() == before
    for source, words in (
        ("def", "line 1 is not Python"),
        ("a\0b", "is not Python|line"),
        ("(" * 5000, "is not Python|line"),
    ):
        (tmp_path / "bad.py").write_text(source)
        with pytest.raises(SpecError, match=words):
            write_job_file(tmp_path / "bad.py", tmp_path / "bad.yaml")
    with pytest.raises(SpecError, match="no such file"):
        write_job_file(tmp_path / "none.py", tmp_path / "bad.yaml")
    with pytest.raises(SpecError, match="can't be written"):
        write_job_file(tmp_path / "train.py", tmp_path / "none" / "job.yaml")
    assert not (tmp_path / "bad.yaml").exists()


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*/*.py")), ids=str)
def test_each_example_gets_a_file_that_can_be_submitted(script: Path, tmp_path: Path) -> None:
    write_job_file(script, tmp_path / "job.yaml")
    assert load_job(tmp_path / "job.yaml", 0.0).spec.command[0] == "python"
