"""Facts about a training script, from its syntax tree; the script is never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_BATCH_WORDS: Final = frozenset(
    {"batch_size", "batch", "per_device_train_batch_size", "train_batch_size", "batchsize", "bs"}
)
_MOST_BATCH: Final = 1 << 20
_OPTION_NAME: Final = re.compile(r"-{0,2}\w[\w.:/+-]{0,99}")


class ScriptKind(StrEnum):
    """Way in which a script trains, as its imports and calls show."""

    SESSION = "session"
    INTEGRATION = "integration"
    TRANSFORMERS = "transformers"
    LIGHTNING = "lightning"
    ACCELERATE = "accelerate"
    DISTRIBUTED = "distributed"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class ScriptOption:
    """Option of a script that argparse parses. `default` is its literal; None: none is known."""

    name: str
    default: str | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """Facts about a job that its script shows.

    `batch` is the batch size that it sets; None: unknown. `saves`: it calls `torch.save`.
    `uses_cuda`: it names CUDA.
    """

    kind: ScriptKind
    options: tuple[ScriptOption, ...] = ()
    batch: int | None = None
    saves: bool = False
    uses_cuda: bool = False


def read_script(source: str) -> ScriptFacts:
    """Return the facts about a script.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the script are its owner's
            tree = ast.parse(source)
    except (RecursionError, MemoryError):
        raise ValueError("it is nested too deeply") from None
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    options = tuple(option for call in calls if (option := _option(call)) is not None)
    strings = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return ScriptFacts(
        _kind(set(_modules(nodes)), calls),
        options,
        _batch(nodes, options),
        any(_called(call) == "torch.save" for call in calls),
        any(text.startswith("cuda") for text in strings)
        or any(_called(call).endswith(".cuda") for call in calls),
    )


def _modules(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the modules that are imported, and `module.name` of imported names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _kind(modules: set[str], calls: list[ast.Call]) -> ScriptKind:
    packages = {module.partition(".")[0] for module in modules}
    if any(module.startswith("autoscaler.integrations") for module in modules):
        return ScriptKind.INTEGRATION
    if any(module.startswith("autoscaler.training") for module in modules):
        return ScriptKind.SESSION
    names = {_called(call).rpartition(".")[2] for call in calls}
    if "accelerate" in packages and "Accelerator" in names:
        return ScriptKind.ACCELERATE
    if packages & {"lightning", "pytorch_lightning"} and "Trainer" in names:
        return ScriptKind.LIGHTNING
    if "transformers" in packages and any(name.endswith("Trainer") for name in names):
        return ScriptKind.TRANSFORMERS
    if names & {"DistributedDataParallel", "init_process_group", "fully_shard"}:
        return ScriptKind.DISTRIBUTED
    return ScriptKind.PLAIN


def _option(call: ast.Call) -> ScriptOption | None:
    """Return the option that a call of `add_argument` adds; None for another call.

    Names that nobody types on a command line, such as those with control characters, are left out.
    """
    names = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    if _called(call).rpartition(".")[2] != "add_argument" or not names:
        return None
    texts = [name for name in names if isinstance(name, str) and _OPTION_NAME.fullmatch(name)]
    longest = max(texts, key=len, default="")
    if not longest:
        return None
    values = {keyword.arg: keyword.value for keyword in call.keywords}
    default, required = values.get("default"), values.get("required")
    is_required = isinstance(required, ast.Constant) and required.value is True
    is_optional = isinstance(values.get("nargs"), ast.Constant) or default is not None
    text = None
    if isinstance(default, ast.Constant) and default.value is not None:
        text = _text(default.value)
    if not longest.startswith("-"):
        is_required = not is_optional
    return ScriptOption(longest, text, is_required)


def _batch(nodes: list[ast.AST], options: tuple[ScriptOption, ...]) -> int | None:
    """Return the batch size of a script: the default of an option, else the first literal."""
    for option in options:
        if option.name.strip("-").replace("-", "_") in _BATCH_WORDS and option.default:
            return _size(option.default)
    named = (pair for node in nodes for pair in _named_values(node))
    literals = (
        value.value
        for name, value in named
        if name.lower() in _BATCH_WORDS and isinstance(value, ast.Constant)
    )
    return next((_size(_text(literal)) for literal in literals), None)


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values that a call passes, or an assignment binds, by name."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield keyword.arg or "", keyword.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value


def _size(text: str) -> int | None:
    is_short = len(text) <= len(str(_MOST_BATCH))
    return int(text) if is_short and text.isdecimal() and 0 < int(text) <= _MOST_BATCH else None


def _text(literal: object) -> str:
    """Return a literal as text; an integer with more digits than Python prints as ``...``."""
    try:
        return str(literal)
    except ValueError:
        return "..."


def _called(call: ast.Call) -> str:
    """Return the dotted name that is called; only its end where the rest is no name."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))
