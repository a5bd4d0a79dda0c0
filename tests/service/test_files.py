from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from autoscaler.service.files import Bundles, Logs

PARTS = (b"one ", b"bundle ", b"in parts")
SHA256 = "5" * 64


async def arriving(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


def test_two_uploads_of_one_bundle_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path, 1000)

    async def both() -> None:
        await asyncio.gather(*(bundles.receive(SHA256, arriving(*PARTS)) for _ in range(2)))

    asyncio.run(both())
    assert bundles.path(SHA256).read_bytes() == b"one bundle in parts"
    assert list(tmp_path.iterdir()) == [bundles.path(SHA256)]


def test_a_character_is_not_broken_between_two_parts(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    text = "50 \N{EURO SIGN}\n".encode()
    logs.append("job", "job-0-1", 0, text[:4])
    (first,) = logs.read("job", {})
    assert (first.text, first.next_offset) == ("50 ", 3)
    assert logs.read("job", {"job-0-1": 3}) == ()
    logs.append("job", "job-0-1", 4, text[4:] + b"\xff\n")
    (second,) = logs.read("job", {"job-0-1": 3})
    assert second.text == "\N{EURO SIGN}\n\N{REPLACEMENT CHARACTER}\n"
    assert logs.read("job", {"job-0-1": second.next_offset}) == ()
