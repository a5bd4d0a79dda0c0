"""What Cloud Storage keeps: buckets of objects, whichever of its two APIs they came by."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Project


@dataclass(frozen=True, slots=True)
class Stored:
    """One object, in the generation that it has."""

    name: str
    content: bytes
    generation: int
    updated_seconds: float
    content_type: str = "application/octet-stream"

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.content, usedforsecurity=False).digest()

    @property
    def etag(self) -> str:
        return f'"{self.md5.hex()}"'

    @property
    def md5_in_json(self) -> str:
        return base64.b64encode(self.md5).decode()


@dataclass(slots=True, eq=False)
class Upload:
    """Parts that are to be one object."""

    name: str
    content_type: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Bucket:
    """One bucket; it does not keep what was overwritten or deleted."""

    name: str
    project: Project
    objects: dict[str, Stored] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)

    def put(
        self,
        name: str,
        content: bytes,
        content_type: str = "application/octet-stream",
        generation: int | None = None,
    ) -> Stored:
        """`generation` is what is to be overwritten, 0 if nothing is.

        Raises:
            Refusal: something else is there.
        """
        self.check(name, generation)
        now = self.project.clock.now()
        number = int(now * 1e6) + self.project.next_number()
        stored = Stored(name, content, number, now, content_type)
        self.objects[name] = stored
        return stored

    def get(self, name: str) -> Stored:
        """What is there.

        Raises:
            Refusal: nothing is.
        """
        if name not in self.objects:
            raise Refusal(404, "notFound", f"No such object: {self.name}/{name}")
        return self.objects[name]

    def delete(self, name: str, generation: int | None = None) -> None:
        self.get(name)
        self.check(name, generation)
        del self.objects[name]

    def check(self, name: str, generation: int | None) -> None:
        held = self.objects[name].generation if name in self.objects else 0
        if generation is not None and generation != held:
            told = "At least one of the pre-conditions you specified did not hold."
            raise Refusal(412, "conditionNotMet", told)

    def page(
        self, prefix: str, delimiter: str, after: str, most: int
    ) -> tuple[list[Stored], list[str], str]:
        """Objects and common prefixes in order, and what the next page begins after, or ""."""
        objects: list[Stored] = []
        prefixes: list[str] = []
        last = ""
        for name in sorted(self.objects):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            head, mark, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
            place = prefix + head + mark if mark else name
            if place <= after or (prefixes and place == prefixes[-1]):
                continue
            if len(objects) + len(prefixes) == most:
                return objects, prefixes, last
            if mark:
                prefixes.append(place)
            else:
                objects.append(self.objects[name])
            last = place
        return objects, prefixes, ""
