"""Fingerprints of replicas: what must be equal on all that train together, in a few numbers.

Replicas that differ in one of these would train on other examples, or another model, and nobody
would notice. The numbers are exact as 64-bit floats, which is how rows travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Final

from torch import Tensor

from autoscaler.domain.errors import MismatchError

_WORDS: Final = {
    "seed": "the seed",
    "examples": "the length of the dataset",
    "parameters": "the number of the model's parameters",
    "shapes": "the names and shapes of the model's parameters",
    "code": "the code of the script, the model or the dataset",
    "settings": "the kind of an optimizer, its parameters or another argument of session",
    "buckets": "the sizes of the buckets of gradients, which another release of torch may change",
}
_COUNTS: Final = ("seed", "examples", "parameters")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Numbers of one replica that its peers' must equal; hashes but for the counts."""

    seed: float = 0.0
    examples: float = 0.0
    parameters: float = 0.0
    shapes: float = 0.0
    code: float = 0.0
    settings: float = 0.0
    buckets: float = 0.0


FINGERPRINT_WIDTH = len(fields(Fingerprint))


def require_equal(own: Fingerprint, other: Fingerprint, own_name: str, other_name: str) -> None:
    """Check that a replica may train with another.

    Raises:
        MismatchError: they differ; the message names both, and all that differs.
    """
    differences = [
        _difference(field, ours, theirs, other_name)
        for field, ours, theirs in zip(_WORDS, astuple(own), astuple(other), strict=True)
        if ours != theirs
    ]
    if differences:
        raise MismatchError(
            f"{own_name} can't train with {other_name}: {'; '.join(differences)}: let all "
            "replicas run one script with one seed on one dataset"
        )


def require_equal_shapes(
    own: Mapping[str, Tensor], other: Mapping[str, Tensor], other_name: str
) -> None:
    """Check that a model can take the state of another replica's model.

    Raises:
        MismatchError: a tensor is missing, or has another shape; the message names the first.
    """
    for name in [*own, *(other.keys() - own.keys())]:
        shapes = [_shape(tensors.get(name)) for tensors in (own, other)]
        if shapes[0] != shapes[1]:
            raise MismatchError(
                f"the model's {name} is {shapes[0]} here and {shapes[1]} on {other_name}: let all "
                "replicas run one script"
            )


def _difference(field: str, ours: float, theirs: float, other_name: str) -> str:
    if field in _COUNTS:
        return f"{_WORDS[field]} is {ours:.0f} here and {theirs:.0f} on {other_name}"
    return f"{_WORDS[field]} differs"


def _shape(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return "x".join(str(size) for size in tensor.shape) or "a single number"
