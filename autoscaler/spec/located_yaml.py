"""YAML documents with the line of each key, and without guessed types.

Every scalar stays text, except that `null`, `~` and an empty value become None. ``LR: 0.10``
reaches an environment as ``0.10``, and ``on`` is not a boolean. Forms convert text to numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from autoscaler.domain.errors import SpecError

_NULL_TAG = "tag:yaml.org,2002:null"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = re.compile("(?:~|null|Null|NULL|)$")


@dataclass(frozen=True, slots=True)
class LocatedYaml:
    """YAML document.

    Attributes:
        value: content, made of dicts, lists, strings and None.
        origin: name of the file, for messages.
        root: root of the parse tree; None for an empty document.
    """

    value: object
    origin: str
    root: yaml.Node | None

    def locate(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return the number of leading parts of `path` in the text, and the last one's line."""
        node = self.root
        line = 0 if node is None else node.start_mark.line
        for depth, part in enumerate(path):
            child = _child(node, part)
            if child is None:
                return depth, line + 1
            line, node = child
        return len(path), line + 1


def read_yaml(text: str, origin: str) -> LocatedYaml:
    """Read one YAML document.

    Raises:
        SpecError: the text is not YAML, has several documents, or repeats a key.
    """
    try:
        loader = _TextLoader(text)
        root = loader.get_single_node()
        value = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f"{mark.line + 1}:"
        raise SpecError(f"{origin}:{line} not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise SpecError(f"{origin}: not valid YAML: {problem}") from error
    except RecursionError:
        raise SpecError(f"{origin}: not valid YAML: it is nested too deeply") from None
    return LocatedYaml(value, origin, root)


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


class _TextLoader(yaml.BaseLoader):
    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        """Return the text of a node, with surrogate pairs as JSON escapes them joined."""
        text = super().construct_scalar(node)
        if not _SURROGATE.search(text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            problem = "half of a surrogate pair is no character"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f'the key "{key.value}" is given twice'
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_TextLoader.add_implicit_resolver(_NULL_TAG, _NULL, ["~", "n", "N", ""])
_TextLoader.add_constructor(_NULL_TAG, lambda _loader, _node: None)
