"""Fingerprints of replicas: hashes and counts of all that must be equal for training together.

Replicas that differ would silently train on other examples, with other code, or another model.
The numbers are exact as 64-bit floats, the type of the rows that ranks exchange.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from autoscaler.domain.errors import MismatchError

_DESCRIPTIONS: Final = {
    "seed": "the seed",
    "examples": "the length of the dataset",
    "parameters": "the number of the model's parameters",
    "shards": "the number of ranks that hold one copy of the sharded model",
    "shapes": "the names and shapes of the model's parameters",
    "code": "the code of the script, the model or the dataset",
    "settings": "the kind of an optimizer, its parameters or another argument of session",
    "buckets": "the sizes of the buckets of gradients, which another release of torch may change",
    "castor": "the version of castor",
    "torch": "the version of torch",
}
_COUNTS: Final = ("seed", "examples", "parameters", "shards")
_VERSIONS: Final = ("castor", "torch")

# Number of slots; a hash of a module's name chooses its slot.
SLOTS: Final = 32
_SLOT_BITS: Final = 26  # of the names' hash, and as many of the contents'
_PART_BITS: Final = 13  # of each of the three parts of a version
_DIGEST_BITS: Final = 12


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Numbers of one replica that must equal those of its peers; mostly hashes.

    `shards` is 0 for a model that is not sharded. `castor` and `torch` are results of
    `version_number`. `modules` holds for each slot a result of `slot_number`. `files` names the
    files of each slot, for messages only; it is not exchanged.
    """

    seed: float = 0.0
    examples: float = 0.0
    parameters: float = 0.0
    shards: float = 0.0
    shapes: float = 0.0
    code: float = 0.0
    settings: float = 0.0
    buckets: float = 0.0
    castor: float = 0.0
    torch: float = 0.0
    modules: tuple[float, ...] = (0.0,) * SLOTS
    files: tuple[str, ...] = field(default=("",) * SLOTS, compare=False)

    def numbers(self) -> list[float]:
        """Return the `FINGERPRINT_WIDTH` numbers that replicas exchange."""
        return [*(getattr(self, name) for name in _DESCRIPTIONS), *self.modules]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Fingerprint:
        """Return the fingerprint with these numbers, without `files`."""
        count = len(_DESCRIPTIONS)
        make: Callable[..., Fingerprint] = cls
        return make(*numbers[:count], modules=tuple(numbers[count:]))


FINGERPRINT_WIDTH: Final = len(_DESCRIPTIONS) + SLOTS


def slot_number(names_digest: int, contents_digest: int) -> float:
    """Return the number of a slot from hashes of its modules' names and contents."""
    bits = 1 << _SLOT_BITS
    return float(names_digest % bits * bits + contents_digest % bits)


def version_number(version: str, digest: int) -> float:
    """Return a number with the first three parts of a version and some bits of its digest."""
    number, largest = 0, (1 << _PART_BITS) - 1
    for part in [*re.findall(r"\d+", version), "0", "0", "0"][:3]:
        number = number << _PART_BITS | min(int(part), largest)
    return float(number << _DIGEST_BITS | digest % (1 << _DIGEST_BITS))


def require_equal(local: Fingerprint, other: Fingerprint, own_name: str, other_name: str) -> None:
    """Check that two replicas may train together.

    Modules that only one of the replicas has loaded are not compared.

    Raises:
        MismatchError: they differ; the message names both replicas and all differences.
    """
    files = _differing_files(local, other)
    differences = [
        _difference(name, getattr(local, name), getattr(other, name), other_name)
        for name in _DESCRIPTIONS
        if getattr(local, name) != getattr(other, name) and not (name == "code" and files)
    ]
    differences += [f"the code differs in {file}" for file in files]
    if differences:
        raise MismatchError(
            f"{own_name} can't train with {other_name}: {'; '.join(differences)}: run all "
            "replicas with one script, one seed and one dataset, and with the same versions of "
            "its code and packages"
        )


def _differing_files(local: Fingerprint, other: Fingerprint) -> list[str]:
    """Return the files of slots with the same module names but other contents."""
    bits = float(1 << _SLOT_BITS)
    return [
        files or "a module of the script"
        for files, ours, theirs in zip(local.files, local.modules, other.modules, strict=True)
        if ours != theirs and ours // bits == theirs // bits
    ]


def require_equal_shapes(
    local: Mapping[str, Tensor], other: Mapping[str, Tensor], other_name: str
) -> None:
    """Check that a model can load the state of another replica's model.

    Raises:
        MismatchError: a tensor is missing or has another shape; the message names the first one.
    """
    for name in [*local, *(other.keys() - local.keys())]:
        shapes = [
            shape_text(tensors[name].shape) if name in tensors else "missing"
            for tensors in (local, other)
        ]
        if shapes[0] != shapes[1]:
            raise MismatchError(
                f"the model's {name} is {shapes[0]} here and {shapes[1]} on {other_name}: run all "
                "replicas with one script"
            )


def require_equal_shards(local: int | None, other: int | None, other_name: str) -> None:
    """Check that two replicas shard the model over equally many ranks; None is a plain model.

    Raises:
        MismatchError: they do not; the message names both.
    """
    if local != other:
        raise MismatchError(
            f"the model is {_shards_text(local)} here and {_shards_text(other)} on {other_name}: "
            "set parallelism: {shard: N} in the job file and pass replica_mesh() to fully_shard, "
            "or run on instances with equally many devices"
        )


def _shards_text(shards: int | None) -> str:
    return "not sharded" if shards is None else f"sharded over {shards} ranks"


def _difference(name: str, ours: float, theirs: float, other_name: str) -> str:
    description = _DESCRIPTIONS[name]
    if name in _COUNTS:
        return f"{description} is {ours:.0f} here and {theirs:.0f} on {other_name}"
    if name in _VERSIONS and _version(ours) != _version(theirs):
        return f"{description} is {_version(ours)} here and {_version(theirs)} on {other_name}"
    return f"{description} differs"


def _version(number: float) -> str:
    parts = int(number) >> _DIGEST_BITS
    shifts = (2 * _PART_BITS, _PART_BITS, 0)
    return ".".join(str(parts >> shift & ((1 << _PART_BITS) - 1)) for shift in shifts)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape for people, such as `4x3`."""
    return "x".join(str(length) for length in shape) or "a single number"
