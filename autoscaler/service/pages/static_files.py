"""Files that pages load: style sheet, scripts. Nothing is loaded from elsewhere.

The address of a file contains the hash of its content, so that browsers keep it for good.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from autoscaler.domain.errors import NotFound
from autoscaler.domain.text import quoted

_DIRECTORY: Final = Path(__file__).parent / "static"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HASH_DIGITS: Final = 12
_HEADERS: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """Content of a file, and its type."""

    content: bytes
    media_type: str


class StaticFiles:
    """All files of `static/`, in memory, by the last part of their addresses."""

    def __init__(self) -> None:
        self._files: dict[str, StaticFile] = {}
        self._names: dict[str, str] = {}
        for path in sorted(_DIRECTORY.iterdir()):
            media_type = _MEDIA_TYPES.get(path.suffix)
            if media_type is not None:
                content = path.read_bytes()
                digits = hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
                name = f"{path.stem}.{digits}{path.suffix}"
                self._files[name] = StaticFile(content, media_type)
                self._names[path.name] = name

    def url(self, name: str) -> str:
        """Return the address of the file `name` of `static/`."""
        return f"/static/{self._names[name]}"

    def file(self, name: str) -> StaticFile:
        """Return the file at the address that ends with `name`.

        Raises:
            NotFound: there is none.
        """
        known = self._files.get(name)
        if known is None:
            raise NotFound(f"no file of the pages is called {quoted(name)}: load the page again")
        return known


def static_router(files: StaticFiles) -> APIRouter:
    """Return the route of the files, which needs no session."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        file = files.file(name)
        return Response(file.content, headers=_HEADERS, media_type=file.media_type)

    return router
