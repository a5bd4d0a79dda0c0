"""Uploads of forms: fields, and files that are written to a directory as they arrive.

A form that uploads sends its token first, so that no file of another site is written.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from fastapi.concurrency import run_in_threadpool

from autoscaler.domain.errors import SpecError
from autoscaler.domain.paths import inside
from autoscaler.domain.text import printable, quoted

_BOUNDARY: Final = re.compile(r'multipart/form-data;\s*boundary="?([^";,\s]{1,200})"?')
_NAME: Final = re.compile(rb'\bname="([^"]*)"')
_FILE_NAME: Final = re.compile(rb'\bfilename="([^"]*)"')
_END_OF_HEAD: Final = b"\r\n\r\n"
_LONGEST_HEAD: Final = 8_192
_LARGEST_FIELD: Final = 1 << 20
_MOST_PARTS: Final = 20_000
_LONGEST_PATH_BYTES: Final = 1_000


@dataclass(slots=True)
class Uploaded:
    """Fields of a form, by name, and the paths of its files below the directory."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[PurePosixPath] = field(default_factory=list)


def boundary_of(content_type: str) -> bytes:
    """Return the boundary between the parts of a form.

    Raises:
        SpecError: the content is no form with files.
    """
    match = _BOUNDARY.fullmatch(content_type.strip())
    if match is None:
        raise SpecError("the form has no files: send it as multipart/form-data")
    return match[1].encode()


class UploadParser:
    """Parser of one form, which is fed with the bytes of the body.

    `check_field` is called with each field before the next part; it raises to refuse the form.
    """

    def __init__(
        self,
        boundary: bytes,
        directory: Path,
        maximum_bytes: int,
        check_field: Callable[[str, str], None],
    ) -> None:
        self._mark = b"\r\n--" + boundary
        self._directory = directory
        self._left_bytes = maximum_bytes
        self._maximum_bytes = maximum_bytes
        self._check_field = check_field
        self._buffer = b"\r\n"
        self._part: _Part | None = None
        self._parts = 0
        self._is_over = False
        self._has_begun = False
        self.uploaded = Uploaded()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            SpecError: the form is malformed, or too large.
        """
        self._buffer += chunk
        while not self._is_over and self._step():
            pass

    def close(self) -> None:
        """End the parser.

        Raises:
            SpecError: the form was cut off.
        """
        self.abandon()
        if not self._is_over:
            raise SpecError("the upload was cut off: send the form again")

    def abandon(self) -> None:
        """Close the file of a part that was cut off."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _step(self) -> bool:
        """Take what can be taken of the buffer; return whether there may be more."""
        if self._part is not None or not self._has_begun:
            return self._take_content()
        return self._take_head()

    def _take_content(self) -> bool:
        """Take the content of a part up to the next mark."""
        content, mark, rest = self._buffer.partition(self._mark)
        if mark:
            self._put(content)
            self._end_part()
            self._buffer, self._has_begun = rest, True
            return True
        kept = len(self._mark) - 1
        content, self._buffer = self._buffer[:-kept], self._buffer[-kept:]
        self._put(content)
        return False

    def _take_head(self) -> bool:
        """Take the head of the next part, or the end of the form."""
        if self._buffer.startswith(b"--"):
            self._is_over = True
            return False
        head, blank, rest = self._buffer.partition(_END_OF_HEAD)
        if len(head) >= _LONGEST_HEAD + len(_END_OF_HEAD):  # also one that has not ended yet
            raise SpecError("a part of the form has too long a head")
        if not blank:
            return False
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise SpecError(f"the form has more than {_MOST_PARTS:,} files: leave some out")
        self._part = self._new_part(head)
        self._buffer = rest
        return True

    def _new_part(self, head: bytes) -> _Part:
        name = _NAME.search(head)
        if name is None:
            raise SpecError("a part of the form has no name")
        file_name = _FILE_NAME.search(head)
        if file_name is None:
            return _Part(name[1].decode("utf-8", "replace"))
        if not file_name[1]:  # an input for files that was left empty
            return _Part("")
        path = relative_path(file_name[1].decode("utf-8", "replace"))
        target = inside(self._directory, *path.parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = target.open("xb")
        except (FileExistsError, NotADirectoryError):
            raise SpecError(f"{quoted(str(path))} is in the upload twice", "files") from None
        self.uploaded.files.append(path)
        return _Part(name[1].decode("utf-8", "replace"), file)

    def _put(self, content: bytes) -> None:
        if self._part is None or not content:
            return
        self._left_bytes -= len(content)
        if self._left_bytes < 0:
            raise SpecError(
                f"the upload is larger than the {self._maximum_bytes:,} bytes that are taken: "
                "leave files out, or use castor submit",
                "files",
            )
        self._part.put(content)

    def _end_part(self) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        part.close()
        if part.file is None and part.name:
            value = part.content.decode("utf-8", "replace")
            self.uploaded.fields.setdefault(part.name, value)
            self._check_field(part.name, value)
        elif part.name and self.uploaded.files:
            self._check_field(part.name, "")


@dataclass(slots=True)
class _Part:
    """Part of a form: a field, or a file that is open. An empty name: it is dropped."""

    name: str
    file: IO[bytes] | None = None
    content: bytes = b""

    def put(self, content: bytes) -> None:
        if self.file is not None:
            self.file.write(content)
            return
        self.content += content
        if len(self.content) > _LARGEST_FIELD:
            raise SpecError(f"is longer than {_LARGEST_FIELD:,} letters", printable(self.name))

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def relative_path(text: str) -> PurePosixPath:
    """Return the path of an uploaded file below the folder that was chosen.

    Raises:
        SpecError: the path leaves the folder.
    """
    path = PurePosixPath(text.replace("\\", "/"))
    parts = path.parts[1:] if len(path.parts) > 1 else path.parts
    is_short = len(text.encode()) <= _LONGEST_PATH_BYTES
    is_plain = text.isprintable() and is_short and not path.is_absolute()
    if not parts or not is_plain or ".." in path.parts:
        raise SpecError(f"{quoted(text[:100])} is no path of a file in a folder", "files")
    return PurePosixPath(*parts)


async def receive_form(parser: UploadParser, chunks: AsyncIterator[bytes]) -> Uploaded:
    """Return the form whose body is `chunks`.

    Raises:
        SpecError: the form is malformed, or too large.
    """
    try:
        async for chunk in chunks:
            await run_in_threadpool(parser.feed, chunk)
        parser.close()
    finally:
        parser.abandon()
    return parser.uploaded
