from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.service.files.free_space import FreeSpace
from autoscaler.service.files.job_log_limit import LOGS_DROPPED, JobLogLimit, stored_limit
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles, TrialFiles
from autoscaler.service.pages.multipart import UploadParser
from autoscaler.spec.bundle import pack
from tests.service.agents import joined, node_report, packed
from tests.service.conftest import Api

SHA256 = "5" * 64
PART_BYTES = 256 << 10
MANY_PARTS = 128
FEW_PARTS = 24


async def arriving(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


def parts_of(archive: Path) -> list[bytes]:
    content = archive.read_bytes()
    return [content[start : start + 50] for start in range(0, len(content), 50)]


def test_two_uploads_of_one_bundle_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path / "bundles", 1000)
    archive, sha256 = packed(tmp_path)

    async def both() -> None:
        parts = parts_of(archive)
        await asyncio.gather(*(bundles.receive(sha256, arriving(*parts), "ada") for _ in range(2)))

    asyncio.run(both())
    assert bundles.path(sha256).read_bytes() == archive.read_bytes()
    assert list((tmp_path / "bundles").iterdir()) == [bundles.path(sha256)]


def traced_bytes(act: Callable[[], object]) -> int:
    """Return the most memory that Python objects hold during a call, beyond that before."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def random_parts(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield os.urandom(PART_BYTES)


def test_a_bundle_is_never_in_memory(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "data").write_bytes(os.urandom(MANY_PARTS * PART_BYTES))
    archive = tmp_path / "a.tar.gz"
    bundle = pack(tmp_path / "job", archive, maximum_bytes=1 << 30)
    bundles = Bundles(tmp_path / "bundles", 1 << 30)

    async def parts() -> AsyncIterator[bytes]:
        with archive.open("rb") as file:
            while part := file.read(PART_BYTES):
                yield part

    def receive() -> None:
        asyncio.run(bundles.receive(bundle.sha256, parts(), "ada"))

    assert archive.stat().st_size > MANY_PARTS * PART_BYTES
    assert traced_bytes(receive) < FEW_PARTS * PART_BYTES
    assert bundles.path(bundle.sha256).stat().st_size == archive.stat().st_size


def test_a_file_of_a_trial_is_never_in_memory(tmp_path: Path) -> None:
    files = TrialFiles(tmp_path, 1 << 30)

    def receive() -> None:
        with pytest.raises(SpecError, match="was changed on its way"):
            asyncio.run(files.receive("sweep", SHA256, random_parts(MANY_PARTS)))

    assert traced_bytes(receive) < FEW_PARTS * PART_BYTES


def test_an_upload_that_is_declared_too_large_is_not_read(tmp_path: Path) -> None:
    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    with pytest.raises(SpecError, match="larger than the 1,000 bytes"):
        asyncio.run(Bundles(tmp_path / "b", 1000).receive(SHA256, unread(), "ada", 1001))
    with pytest.raises(SpecError, match="larger than the 1,000 bytes"):
        asyncio.run(TrialFiles(tmp_path / "f", 1000).receive("sweep", SHA256, unread(), 1001))
    assert not list(tmp_path.glob("*/*"))


def test_a_file_of_a_form_is_never_in_memory(tmp_path: Path) -> None:
    parser = UploadParser(b"xyz", tmp_path, 1 << 30, lambda name, value: None)
    head = b'--xyz\r\nContent-Disposition: form-data; name="files"; filename="d/a"\r\n\r\n'

    def receive() -> None:
        parser.feed(head)
        for _ in range(MANY_PARTS):
            parser.feed(os.urandom(PART_BYTES))
        parser.feed(b"\r\n--xyz--\r\n")
        parser.close()

    assert traced_bytes(receive) < FEW_PARTS * PART_BYTES
    assert (tmp_path / "a").stat().st_size == MANY_PARTS * PART_BYTES


@pytest.mark.parametrize("content", [b"garbage", b""])
def test_a_bundle_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, content: bytes
) -> None:
    bundles = Bundles(tmp_path, 1000)
    with pytest.raises(SpecError, match="is damaged"):
        asyncio.run(bundles.receive(SHA256, arriving(content), "ada"))
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_never_overwritten(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path / "bundles", 1000)
    archive, sha256 = packed(tmp_path)
    asyncio.run(bundles.receive(sha256, arriving(*parts_of(archive)), "ada"))
    kept = bundles.path(sha256).read_bytes()
    other, other_sha256 = packed(tmp_path, "import os")
    with pytest.raises(SpecError, match=f"holds {other_sha256[:12]}, not {sha256[:12]}"):
        asyncio.run(bundles.receive(sha256, arriving(*parts_of(other)), "ada"))
    again = gzip.compress(gzip.decompress(kept), 1)
    assert again != kept
    asyncio.run(bundles.receive(sha256, arriving(again), "ada"))
    assert bundles.path(sha256).read_bytes() == kept


def test_a_file_of_a_study_is_what_its_name_says(tmp_path: Path) -> None:
    files = TrialFiles(tmp_path, 1000)
    sha256 = hashlib.sha256(b"weights").hexdigest()
    asyncio.run(files.receive("sweep", sha256, arriving(b"wei", b"ghts")))
    with pytest.raises(SpecError, match="was changed on its way"):
        asyncio.run(files.receive("sweep", sha256, arriving(b"others")))
    assert files.path("sweep", sha256).read_bytes() == b"weights"


def test_offsets_beyond_the_end_of_a_log_give_nothing(tmp_path: Path) -> None:
    logs = Logs(tmp_path, VirtualClock())
    logs.append("job", "job-0-1", 0, b"hello\n")
    assert logs.read("job", {"job-0-1": 10**30}) == ()
    assert logs.read("job", {"job-0-1": -(10**30)})[0].text == "hello\n"


def test_a_character_is_not_broken_between_two_parts(tmp_path: Path) -> None:
    logs = Logs(tmp_path, VirtualClock())
    text = "50 \N{EURO SIGN}\n".encode()
    logs.append("job", "job-0-1", 0, text[:4])
    (first,) = logs.read("job", {})
    assert (first.text, first.next_offset) == ("50 ", 3)
    assert logs.read("job", {"job-0-1": 3}) == ()
    logs.append("job", "job-0-1", 4, text[4:] + b"\xff\n")
    (second,) = logs.read("job", {"job-0-1": 3})
    assert second.text == "\N{EURO SIGN}\n\N{REPLACEMENT CHARACTER}\n"
    assert logs.read("job", {"job-0-1": second.next_offset}) == ()


def test_parts_of_a_log_have_the_times_at_which_they_were_received(tmp_path: Path) -> None:
    clock = VirtualClock(100.0)
    logs = Logs(tmp_path, clock)
    logs.append("job", "i", 0, "\N{EURO SIGN}\n".encode())
    clock.advance(0.5)
    logs.append("job", "i", 4, b"same\n")
    clock.advance(5.0)
    logs.append("job", "i", 9, b"later\n")
    (part,) = logs.read("job", {})
    assert part.text == "\N{EURO SIGN}\nsame\nlater\n"
    assert part.times == ((0, 100.0), (7, 105.5))
    (rest,) = logs.read("job", {"i": 10})
    assert (rest.text, rest.times, rest.offset) == ("ater\n", ((0, 105.5),), 10)


def test_the_end_of_every_log_can_be_read(tmp_path: Path) -> None:
    logs = Logs(tmp_path, VirtualClock())
    logs.append("job", "a", 0, b"0123456789")
    logs.append("job", "b", 0, b"01")
    assert [part.text for part in logs.read("job", {"*": -4})] == ["6789", "01"]
    (rest,) = logs.read("job", {"*": -4, "a": 10})
    assert rest.instance == "b"


def test_of_an_endless_log_the_beginning_is_kept(tmp_path: Path) -> None:
    logs = Logs(tmp_path, VirtualClock(), maximum_bytes=100)
    offset, sent = 0, 0
    for _ in range(50):
        offset = logs.append("job", "job-0-1", offset, b"x" * 10)
        sent += 10
        assert offset >= sent, "the instance is not held up"
    (part,) = logs.read("job", {})
    assert part.text.startswith("x" * 100 + "\ncastor: of the log of an instance 100 bytes")
    assert len(part.text) < 200


def limited_logs(
    directory: Path, clock: VirtualClock, working: set[str], records: list[str]
) -> Logs:
    """Return logs of which each job has 3000 bytes."""
    limit = JobLogLimit(3000, lambda job: working, lambda job, text: records.append(text))
    return Logs(directory, clock, limit=limit)


def test_the_oldest_logs_of_ended_instances_make_room_for_others_of_their_job(
    tmp_path: Path,
) -> None:
    records: list[str] = []
    logs = limited_logs(tmp_path, VirtualClock(), {"a", "d"}, records)
    for number, instance in enumerate("abc"):
        assert logs.append("job", instance, 0, instance.encode() * 1000) == 1000
        os.utime(tmp_path / "job" / f"{instance}.log", (number, number))
    assert logs.append("another", "z", 0, b"z" * 3000) == 3000
    assert records == []
    assert logs.append("job", "d", 0, b"d" * 100) == 100
    (record,) = records
    assert "dropped, the oldest first: b. All logs of a job have 3,000 bytes" in record
    parts = {part.instance: part.text for part in logs.read("job", {})}
    line = "castor: the 1000 bytes of this log were dropped: all logs of a job have 3000 bytes\n"
    assert parts == {"a": "a" * 1000, "b": line, "c": "c" * 1000, "d": "d" * 100}
    assert not (tmp_path / "job" / "b.times").exists()
    assert logs.append("job", "b", 1000, b"late") == 1004, "it is discarded, and not sent again"
    assert logs.read("job", {"a": 1000, "b": 1000, "c": 1000, "d": 100}) == ()


def test_without_ended_instances_the_log_that_goes_on_ends(tmp_path: Path) -> None:
    records: list[str] = []
    logs = limited_logs(tmp_path, VirtualClock(), {"a", "b"}, records)
    logs.append("job", "a", 0, b"a" * 2500)
    logs.append("job", "b", 0, b"b" * 400)
    assert logs.append("job", "b", 400, b"b" * 200) == 600
    assert logs.append("job", "b", 600, b"b" * 10) == 610
    (record,) = records
    assert record.startswith("the log of b ends here: all logs of a job have 3,000 bytes")
    (part,) = logs.read("job", {"a": 2500})
    line = "\ncastor: all logs of a job have 3000 bytes: what follows is not here\n"
    assert part.text == "b" * 400 + line
    assert logs.append("job", "a", 0, b"a" * 2500) == 2500, "what is stored needs no room"
    assert len(records) == 1


def test_sizes_and_ends_of_logs_outlive_the_controller(tmp_path: Path) -> None:
    records: list[str] = []
    for round_number in range(4):
        logs = limited_logs(tmp_path, VirtualClock(), {"a", "b"}, records)
        logs.append("job", "a", 1000 * round_number, b"a" * 1000)
        logs.append("job", "b", 1000 * round_number, b"b" * 1000)
    assert len(records) == 2, "each log ends once"
    stored_bytes = sum(path.stat().st_size for path in (tmp_path / "job").glob("*.log"))
    assert 3000 <= stored_bytes < 3000 + 2 * 80


def test_an_instance_that_works_keeps_its_log_and_the_job_has_an_event(api: Api) -> None:
    held, node = joined(api)
    store, clock = api.world.store, api.world.clock
    logs = Logs(api.directory / "limited", clock, limit=stored_limit(store, clock, 3000))
    logs.append("job", held.id, 0, b"x" * 2000)
    logs.append("job", "job-9-1", 0, b"y" * 900)
    logs.append("job", held.id, 2000, b"x" * 150)
    (event,) = (event for event in store.events.latest("job") if event.kind == LOGS_DROPPED)
    assert "oldest first: job-9-1. All logs" in event.text
    assert logs.end("job", held.id) == 2150
    logs.append("job", held.id, 2150, b"x" * 900)
    assert f"the log of {held.id} ends here" in store.events.latest("job")[0].text
    node.heartbeat(node_report(held))
    assert not store.jobs.get("job").phase.is_final


def test_no_log_is_dropped_while_there_is_room(tmp_path: Path) -> None:
    records: list[str] = []
    logs = limited_logs(tmp_path, VirtualClock(), set(), records)
    for instance in ("a", "b", "c"):
        for _ in range(2):
            logs.append("job", instance, 0, b"x" * 1000)
    assert records == []
    assert [len(part.text) for part in logs.read("job", {})] == [1000] * 3


def test_a_disk_that_is_nearly_full_takes_no_logs_and_files_until_there_is_room(
    tmp_path: Path,
) -> None:
    free = {"bytes": 999}
    space = FreeSpace(1000, lambda directory: free["bytes"])
    logs = Logs(tmp_path / "logs", VirtualClock(0.0), space=space)
    with pytest.raises(Unavailable, match=r"the log of job-0-1 must wait until there is more"):
        logs.append("job", "job-0-1", 0, b"a line\n")
    assert logs.append("job", "job-0-1", 0, b"") == 0, "its size is told all the same"
    bundles = Bundles(tmp_path / "bundles", 1000, space)
    archive, sha256 = packed(tmp_path)
    with pytest.raises(Unavailable, match="the bundle must wait"):
        asyncio.run(bundles.receive(sha256, arriving(*parts_of(archive)), "ada"))
    assert not [path for path in (tmp_path / "bundles").iterdir()]
    files = TrialFiles(tmp_path / "files", space=space)
    with pytest.raises(Unavailable, match="the file of study sweep must wait"):
        asyncio.run(files.receive("sweep", SHA256, arriving(b"text")))
    free["bytes"] = 1000
    assert logs.append("job", "job-0-1", 0, b"a line\n") == 7
    asyncio.run(bundles.receive(sha256, arriving(*parts_of(archive)), "ada"))


def test_an_upload_that_fills_the_disk_is_cut_off(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure(directory: Path) -> int:
        measured.append(1)
        return 2000 - 1500 * (len(measured) > 1)

    files = TrialFiles(tmp_path, 1 << 30, FreeSpace(1000, measure))
    chunks = [bytes(4 << 20)] * 8
    with pytest.raises(Unavailable, match="the file of study sweep must wait"):
        asyncio.run(files.receive("sweep", SHA256, arriving(*chunks)))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
