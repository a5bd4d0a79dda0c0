from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from autoscaler.cli.init.answers import Answers
from autoscaler.cli.init.run import write_configuration
from autoscaler.domain.errors import SpecError

AWS, GCP = Answers("aws"), Answers("gcp", project="my-project-1")


def written(directory: Path, answers: Answers) -> str:
    write_configuration(answers, directory / "new", asks=False)
    return (directory / "new" / "main.tf").read_text()


def value_of(text: str, name: str) -> str:
    """Return the last value of an argument in a configuration."""
    return re.findall(rf"^ *{name} += (.*)$", text, re.MULTILINE)[-1]


@pytest.mark.parametrize("answers", [AWS, GCP], ids=lambda answers: answers.cloud)
def test_without_answers_the_defaults_hold(
    tmp_path: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(tmp_path, answers)
    source = Path(value_of(text, "source").strip('"'))
    assert (source / "pools.tf").exists() and source.name == answers.cloud
    assert value_of(text, "fleet_usd") == '"500"'
    assert value_of(text, "max_instances") == "4"
    printed = capsys.readouterr().out
    assert "terraform init && terraform apply" in printed and "castor check" in printed
    assert f"docs/{answers.cloud}.md" in printed


def test_gpus_choose_the_types_and_the_limit_by_the_hour(tmp_path: Path) -> None:
    text = written(tmp_path, Answers("aws", gpu="L4,H100:8", max_instances="2"))
    types = value_of(text, "instance_types")
    assert types.startswith('["g6.xlarge", ') and types.endswith('"p5.48xlarge"]')
    assert "g6.48xlarge" not in types
    assert value_of(text, "max_usd_per_hour") == "138"  # two at $55.04, and a quarter


@pytest.mark.parametrize(
    ("answers", "field", "cause"),
    [
        (Answers("aws", region="nowhere"), "--region", "write one region, as us-east-1"),
        (Answers("aws", deployment="Prod!"), "--deployment", "lower-case letters"),
        (Answers("aws", gpu="H1000"), "--gpu", 'did you mean "h100"'),
        (Answers("aws", gpu="A100:3"), "--gpu", "aws has no type with A100:3: write A100:8"),
        (Answers("aws", gpu="L4,P100"), "--gpu", "aws has no type with P100: it has a100-40, "),
        (Answers("gcp", project="my-project-1", deployment="my-prod"), "--deployment", "12 lower"),
        (Answers("aws", max_instances="x"), "--max-instances", "from 1 to 999"),
        (Answers("aws", max_instances="0"), "--max-instances", "from 1 to 999"),
        (Answers("aws", fleet_usd="much"), "--fleet-usd", "or none for no limit"),
        (Answers("aws", project="p"), "--project", "is for gcp only"),
        (Answers("gcp"), "--project", "is missing"),
        (Answers("gcp", project="my-p"), "--project", "6 to 30 lower-case letters"),
        (Answers("gcp", project="my-project-1", region="us-east-1"), "--region", "us-central1"),
    ],
)
def test_an_answer_that_can_not_be_used_is_refused_by_name(
    tmp_path: Path, answers: Answers, field: str, cause: str
) -> None:
    with pytest.raises(SpecError, match=f"{field}: .*{re.escape(cause)}"):
        written(tmp_path, answers)
    assert not (tmp_path / "new").exists(), "nothing is written"


@pytest.mark.parametrize(("kind", "types"), [("L4,H200", "p5en.48xlarge"), ("H200", "p5en")])
def test_a_kind_without_a_number_is_the_fewest_that_are_sold(
    tmp_path: Path, kind: str, types: str
) -> None:
    assert types in value_of(written(tmp_path, Answers("aws", gpu=kind)), "instance_types")


@pytest.mark.parametrize("module", ["terraform/modules/aws", "./nothere", "{gcp}"])
def test_a_module_that_is_not_there_is_no_address_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.chdir(tmp_path)
    clone = Path(__file__).parents[3]
    given = module.format(gcp=clone / "terraform/modules/gcp")
    with pytest.raises(SpecError, match=r"--module: .* is not Castor's module of aws"):
        written(tmp_path, Answers("aws", module=given))


def test_a_module_is_a_directory_or_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = Path(__file__).parents[3]
    monkeypatch.chdir(clone)
    text = written(tmp_path / "a", Answers("aws", module="terraform/modules/aws"))
    assert value_of(text, "source") == f'"{clone}/terraform/modules/aws"'
    address = "git::https://example.com/castor.git//terraform/modules/aws"
    assert address in written(tmp_path / "b", Answers("aws", module=address))


def test_the_module_of_the_clone_around_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscaler.cli.init.answers._CLONE", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="--module: no clone of Castor is here"):
        written(tmp_path, AWS)
    clone = Path(__file__).parents[3]
    monkeypatch.chdir(clone / "docs")
    assert f'"{clone}/terraform/modules/aws"' in written(tmp_path, AWS)


def test_what_a_directory_has_stays(tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / ".gitignore").write_text("secrets.env\ndist/\n")
    written(tmp_path, AWS)
    lines = (new / ".gitignore").read_text().splitlines()
    assert lines == ["secrets.env", "dist/", ".terraform/", "*.tfstate*"]
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SpecError, match=r"DIRECTORY: .*file is not a directory"):
        write_configuration(AWS, file, asks=False)


def test_a_configuration_is_never_overwritten(tmp_path: Path) -> None:
    before = written(tmp_path, AWS)
    with pytest.raises(SpecError, match=r"main\.tf exists: name another directory"):
        written(tmp_path, GCP)
    assert (tmp_path / "new" / "main.tf").read_text() == before


def test_a_wrong_answer_on_a_terminal_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = iter(["us-east-1a", "us-east-1", "prod", "H1000", "L4", "2", "100"])
    monkeypatch.setattr(typer, "prompt", lambda question, default: next(said))
    write_configuration(AWS, tmp_path / "new", asks=True)
    refused = capsys.readouterr().err
    assert "write one region, as us-east-1, and no zone" in refused and "h100" in refused


def test_on_a_terminal_each_missing_answer_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def answer(question: str, default: str | None) -> str:
        questions.append(question)
        return default or "my-project-1"

    monkeypatch.setattr(typer, "prompt", answer)
    write_configuration(Answers("gcp", region="europe-west4"), tmp_path / "new", asks=True)
    assert len(questions) == 5 and "Region" not in questions
    assert 'region  = "europe-west4"' in (tmp_path / "new" / "main.tf").read_text()
