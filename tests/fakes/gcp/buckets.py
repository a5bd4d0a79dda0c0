"""Buckets and objects of Cloud Storage, shared by its two APIs."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Project


@dataclass(frozen=True, slots=True)
class Stored:
    """One object in its current generation."""

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
    """Parts of a multipart upload that is not complete."""

    name: str
    content_type: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Bucket:
    """Bucket without versions: overwritten and deleted objects are gone."""

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
        """Store an object.

        `generation` is the generation to overwrite; 0 permits only a new object.

        Raises:
            Refusal: the object has another generation.
        """
        self.check(name, generation)
        now = self.project.clock.now()
        number = int(now * 1e6) + self.project.next_number()
        stored = Stored(name, content, number, now, content_type)
        self.objects[name] = stored
        return stored

    def get(self, name: str) -> Stored:
        """Return an object.

        Raises:
            Refusal: the object does not exist.
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
            problem = "At least one of the pre-conditions you specified did not hold."
            raise Refusal(412, "conditionNotMet", problem)

    def page(
        self, prefix: str, delimiter: str, after: str, maximum: int
    ) -> tuple[list[Stored], list[str], str]:
        """Return objects, common prefixes, and the last name before the next page or ""."""
        objects: list[Stored] = []
        prefixes: list[str] = []
        last = ""
        for name in sorted(self.objects):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            head, mark, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
            listed_name = prefix + head + mark if mark else name
            if listed_name <= after or (prefixes and listed_name == prefixes[-1]):
                continue
            if len(objects) + len(prefixes) == maximum:
                return objects, prefixes, last
            if mark:
                prefixes.append(listed_name)
            else:
                objects.append(self.objects[name])
            last = listed_name
        return objects, prefixes, ""
