"""Fingerprints of replicas: what must be equal on all that train together, in a few numbers.

Replicas that differ in one of these would train on other examples, by other code, or another
model, and nobody would notice. The numbers are exact as 64-bit floats, which is how rows travel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    "castor": "the version of castor",
    "torch": "the version of torch",
}
_COUNTS: Final = ("seed", "examples", "parameters")
_VERSIONS: Final = ("castor", "torch")

# Modules are told in so many numbers, by a hash of their names.
SLOTS: Final = 32
_SLOT_BITS: Final = 26  # of the names, and as many of the contents
_PART_BITS: Final = 13  # of each of the three parts of a version
_DIGEST_BITS: Final = 12


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Numbers of one replica that its peers' must equal; hashes but for counts and versions.

    `castor` and `torch` are as `version_number` returns them. `modules` has for each slot what
    `slot_number` returns. `files` names the files of each slot, and does not travel.
    """

    seed: float = 0.0
    examples: float = 0.0
    parameters: float = 0.0
    shapes: float = 0.0
    code: float = 0.0
    settings: float = 0.0
    buckets: float = 0.0
    castor: float = 0.0
    torch: float = 0.0
    modules: tuple[float, ...] = (0.0,) * SLOTS
    files: tuple[str, ...] = field(default=("",) * SLOTS, compare=False)

    def numbers(self) -> list[float]:
        """Return the `FINGERPRINT_WIDTH` numbers that travel."""
        return [*(getattr(self, name) for name in _WORDS), *self.modules]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Fingerprint:
        """Return the fingerprint of these numbers, without `files`."""
        count = len(_WORDS)
        make: Callable[..., Fingerprint] = cls
        return make(*numbers[:count], modules=tuple(numbers[count:]))


FINGERPRINT_WIDTH: Final = len(_WORDS) + SLOTS


def slot_number(names_digest: int, contents_digest: int) -> float:
    """Return the number of a slot from hashes of its modules' names and of their contents."""
    bits = 1 << _SLOT_BITS
    return float(names_digest % bits * bits + contents_digest % bits)


def version_number(version: str, digest: int) -> float:
    """Return a number that holds the first three parts of a version, and a part of its digest."""
    number, largest = 0, (1 << _PART_BITS) - 1
    for part in [*re.findall(r"\d+", version), "0", "0", "0"][:3]:
        number = number << _PART_BITS | min(int(part), largest)
    return float(number << _DIGEST_BITS | digest % (1 << _DIGEST_BITS))


def require_equal(own: Fingerprint, other: Fingerprint, own_name: str, other_name: str) -> None:
    """Check that a replica may train with another.

    Modules that only one of them has loaded are no difference.

    Raises:
        MismatchError: they differ; the message names both, and all that differs.
    """
    files = _files_that_differ(own, other)
    differences = [
        _difference(name, getattr(own, name), getattr(other, name), other_name)
        for name in _WORDS
        if getattr(own, name) != getattr(other, name) and not (name == "code" and files)
    ]
    differences += [f"the code differs in {file}" for file in files]
    if differences:
        raise MismatchError(
            f"{own_name} can't train with {other_name}: {'; '.join(differences)}: let all "
            "replicas run one script with one seed on one dataset, and with the same versions of "
            "its code and packages"
        )


def _files_that_differ(own: Fingerprint, other: Fingerprint) -> list[str]:
    """Return the files of the slots that hold the same modules with other contents."""
    bits = float(1 << _SLOT_BITS)
    return [
        files or "a module of the script"
        for files, ours, theirs in zip(own.files, own.modules, other.modules, strict=True)
        if ours != theirs and ours // bits == theirs // bits
    ]


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


def _difference(name: str, ours: float, theirs: float, other_name: str) -> str:
    words = _WORDS[name]
    if name in _COUNTS:
        return f"{words} is {ours:.0f} here and {theirs:.0f} on {other_name}"
    if name in _VERSIONS and _version(ours) != _version(theirs):
        return f"{words} is {_version(ours)} here and {_version(theirs)} on {other_name}"
    return f"{words} differs"


def _version(number: float) -> str:
    parts = int(number) >> _DIGEST_BITS
    places = (2 * _PART_BITS, _PART_BITS, 0)
    return ".".join(str(parts >> place & ((1 << _PART_BITS) - 1)) for place in places)


def _shape(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return "x".join(str(size) for size in tensor.shape) or "a single number"
