"""Text of a job file for a script, with comments for its owner."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Final

from autoscaler.cli.new.script import ScriptFacts, ScriptKind, ScriptOption

_PLAIN_NAMES: Final = frozenset({"train", "main", "run", "script", "src", ""})
_LONGEST_NAME: Final = 40
_PORTS: Final = {
    ScriptKind.TRANSFORMERS: "Transformers' Trainer: docs/training-huggingface.md",
    ScriptKind.LIGHTNING: "Lightning: docs/training-lightning.md",
    ScriptKind.ACCELERATE: "Accelerate: docs/training-accelerate.md",
    ScriptKind.PLAIN: "a training loop: docs/training.md",
}


def job_text(script: Path, folder: Path, facts: ScriptFacts, has_requirements: bool) -> str:
    """Return the text of a job file in `folder` for a script with these facts.

    Args:
        script: absolute path of the script.
        folder: absolute path of the job file's folder.
        facts: what the script tells.
        has_requirements: whether the script's folder has a `requirements.txt`.
    """
    working_directory = os.path.relpath(script.parent, folder.resolve())
    lines = [
        f"# Job file for {script.name}; all keys: docs/job-file.md, or castor schema job.",
        f"name: {_name(script)}",
        *_command(script, facts),
    ]
    if working_directory != ".":
        lines.append(f"working_directory: {json.dumps(working_directory)}")
    if has_requirements:
        lines += ["setup:", "  - pip install -r requirements.txt"]
    lines += _training(facts)
    lines += [
        "# What the run is worth; one of: value_of_time: 40 ($/h of waiting), deadline: 4h,",
        "# budget: $20, cheapest, fastest. A deadline and a budget may stand together.",
        "objective: balanced",
        "# environment: {NAME: value}",
        "# secrets: {HF_TOKEN: {variable: HF_TOKEN}}     # values are never in this file",
        "# outputs: [results]                            # files that castor fetch gets",
    ]
    return "\n".join(lines) + "\n"


def _name(script: Path) -> str:
    """Return a name of a job: of the script, or of its folder if the script's says nothing."""
    for text in (script.stem, script.parent.name):
        slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
        if slug not in _PLAIN_NAMES:
            return slug
    return "job"


def _command(script: Path, facts: ScriptFacts) -> list[str]:
    """Return the command with all required options, and a comment on the others."""
    words = ["python", script.name]
    required = [option for option in facts.options if option.is_required]
    for option in required:
        placeholder = option.name.strip("-").upper()
        words += [option.name, placeholder] if option.name.startswith("-") else [placeholder]
    lines = []
    if required:
        lines.append("# Replace the words in capitals.")
    others = [option for option in facts.options if not option.is_required]
    if others:
        lines.append(f"# More options: {', '.join(map(_option_text, others))}")
    return [*lines, f"command: {json.dumps(shlex.join(words), ensure_ascii=False)}"]


def _option_text(option: ScriptOption) -> str:
    """Return an option with its default as part of a comment: one line, ASCII."""
    text = option.name if option.default is None else f"{option.name} {option.default}"
    return json.dumps(text)[1:-1][:60]


def _training(facts: ScriptFacts) -> list[str]:
    """Return the lines on batch and instances, which depend on how the script trains."""
    batch = [] if facts.batch is None else [f"initial: {facts.batch}"]
    gpu = (
        ["# instances also takes gpu: [H100, A100] and gpu_memory: 40GB"]
        if facts.uses_cuda
        else []
    )
    if facts.kind in (ScriptKind.SESSION, ScriptKind.INTEGRATION):
        lines = ["# The batch may grow while larger ones pay; batch: fixed keeps it."]
        initial = ", ".join(batch)
        lines.append(f"batch: {{{initial}}}" if batch else "# batch: {initial: 64, max: 1024}")
        return [*lines, *gpu, "instances: {min: 1, max: 4}"]
    if facts.kind is ScriptKind.DISTRIBUTED:
        return _restartable(facts, gpu)
    port = _PORTS[facts.kind]
    lines = [
        "# The script opens no session, so it gets one instance and its progress is unknown.",
        f"# A few changed lines let it grow and shrink; {port}.",
    ]
    if facts.saves:
        lines.append(
            "# Or unchanged, by restarts: kind: restartable, docs/training-restartable.md."
        )
    return [*lines, *gpu, "instances: {min: 1, max: 1}"]


def _restartable(facts: ScriptFacts, gpu: list[str]) -> list[str]:
    """Return the lines of a script with ranks of its own, which restarts resize."""
    initial = facts.batch or 256
    known = "" if facts.batch else "  # assumed: write the script's own"
    return [
        "# The script starts its own ranks, so restarts from its checkpoints resize it: see",
        "# docs/training-restartable.md. A session joins and leaves in seconds instead.",
        "kind: restartable",
        "# Examples of a step over all devices, which must be the same at each size.",
        f"batch: {{initial: {initial}, fixed: true}}{known}",
        *gpu,
        "instances: {min: 1, max: 1}     # a larger max needs progress, below",
        "restart:",
        "  checkpoint: checkpoints/*.pt  # a new match: the script has saved",
        '  # progress: "step {step} of"  # how a line of its output tells the step',
    ]
