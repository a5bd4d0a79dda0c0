"""Results of a job, listed and fetched from a directory and from a storage."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cli.fetch.run import Fetched, FileSelection, fetch_results, list_results
from autoscaler.domain.checkpoint import MANIFEST, name_of
from autoscaler.domain.errors import (
    CastorError,
    Conflict,
    NotAllowed,
    NotFound,
    SpecError,
    Unavailable,
    UnknownJob,
)
from autoscaler.domain.job import JobPhase
from autoscaler.domain.output import MANIFEST_NAME, OutputFile, OutputManifest
from autoscaler.wire.client import Client
from autoscaler.wire.codec import encode
from tests.service.agents import SPEC, joined
from tests.service.conftest import Api

FIRST, SECOND = "job-0-1", "job-1-1"


class Kept:
    """A deployment with one job, whose agents' part the test does."""

    def __init__(self, api: Api, directory: Path) -> None:
        self.api = api
        self.client: Client = api.client
        _, node = joined(api, SPEC)
        assignment = node.assignment()
        if assignment.outputs_directory is not None:
            self.outputs = Path(assignment.outputs_directory)
            self.checkpoints = Path(assignment.checkpoint_directory)
        else:
            assert assignment.grant is not None
            assert assignment.depot is not None
            self.outputs = Path(assignment.grant.place.removeprefix("file://")) / "outputs"
            self.checkpoints = Path(assignment.depot.removeprefix("file://"))
        self.target = directory / "fetched"

    def keep(self, instance: str, seconds: float, **texts: str) -> None:
        """Publish outputs of an instance; the names of paths have a _ in place of each dot."""
        paths = {name.replace("_", "."): text for name, text in texts.items()}
        self.publish(instance, seconds, [file_of(path, text) for path, text in paths.items()])
        for text in paths.values():
            (self.outputs / instance / sha256(text)).write_text(text)

    def publish(self, instance: str, seconds: float, files: list[OutputFile]) -> None:
        folder = self.outputs / instance
        folder.mkdir(parents=True, exist_ok=True)
        manifest = OutputManifest("job", instance, seconds, tuple(files))
        (folder / MANIFEST_NAME).write_bytes(encode(OutputManifest, manifest))

    def save(self, step: int, **texts: str) -> Path:
        folder = self.checkpoints / name_of(step)
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        hashes = {name: sha256(text) for name, text in texts.items()}
        (folder / MANIFEST).write_text(json.dumps({"step": step, "sha256": hashes}))
        return folder

    def fetch(self, overwrites: bool = False, **choice: bool) -> Fetched:
        return fetch_results(self.client, "job", self.target, FileSelection(**choice), overwrites)

    def texts(self) -> dict[str, str]:
        files = [path for path in self.target.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.target)): path.read_text() for path in files}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(path: str, text: str) -> OutputFile:
    return OutputFile(path, len(text), sha256(text), 1_000_000.0)


@pytest.fixture(params=["api", "stored_api"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(request.getfixturevalue(request.param), tmp_path)


def test_each_path_is_fetched_from_the_instance_that_kept_it_last(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="old", metrics_csv="of the first")
    kept.keep(SECOND, 2.0, best_pt="new")
    fetched = kept.fetch()
    assert kept.texts() == {"best.pt": "new", "metrics.csv": "of the first"}
    assert {file.path: file.instance for file in fetched.fetched} == {
        "best.pt": SECOND,
        "metrics.csv": FIRST,
    }
    assert (kept.target / "best.pt").stat().st_mtime == 1_000_000.0


def test_the_files_of_every_instance_can_be_had(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="old")
    kept.keep(SECOND, 2.0, best_pt="new")
    kept.fetch(every_instance=True)
    assert kept.texts() == {f"{FIRST}/best.pt": "old", f"{SECOND}/best.pt": "new"}


def test_files_of_other_content_are_replaced_on_request_alone(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="one", same_txt="same")
    kept.fetch()
    assert kept.fetch().unchanged == ("best.pt", "same.txt")
    kept.keep(FIRST, 2.0, best_pt="two", same_txt="same", more_txt="more")
    with pytest.raises(Conflict, match=r"1 files of other content: best\.pt; --force replaces"):
        kept.fetch()
    assert kept.texts() == {"best.pt": "one", "same.txt": "same"}, "nothing is written"
    kept.fetch(overwrites=True)
    assert kept.texts() == {"best.pt": "two", "same.txt": "same", "more.txt": "more"}


def test_what_does_not_match_its_hash_is_refused_and_not_left_behind(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="whole")
    (kept.outputs / FIRST / sha256("whole")).write_text("wrong")
    with pytest.raises(CastorError, match=r"best\.pt was damaged"):
        kept.fetch()
    assert kept.texts() == {}


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "a\nb", "", "./x"])
def test_paths_that_lead_elsewhere_are_refused(kept: Kept, path: str) -> None:
    kept.publish(FIRST, 1.0, [OutputFile(path, 1, sha256("x"), 0.0)])
    with pytest.raises(Unavailable, match=f"outputs of {FIRST} can't be listed"):
        kept.fetch()


@pytest.mark.parametrize(
    "broken",
    [
        {"left_out": ("evil\x1b[2J",)},
        {"kept_seconds": 1e300},
        {"files": (OutputFile("a", 1, "5" * 64, 1e300),)},
        {"files": (OutputFile("a", 1, "5" * 64, float("nan")),)},
        {"files": (OutputFile("a", -1, "5" * 64, 0.0),)},
        {"files": (OutputFile("a", 1, "5" * 63 + "/", 0.0),)},
    ],
)
def test_lists_that_a_job_has_forged_are_refused(kept: Kept, broken: dict[str, Any]) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    manifest = replace(OutputManifest("job", FIRST, 1.0, ()), **broken)
    (kept.outputs / FIRST / MANIFEST_NAME).write_bytes(encode(OutputManifest, manifest))
    with pytest.raises(Unavailable, match=f"outputs of {FIRST} can't be listed"):
        list_results(kept.client, "job", FileSelection())


def test_an_instance_speaks_for_no_other(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    forged = OutputManifest("job", "../../x", 9.0, (file_of("best.pt", "best"),))
    (kept.outputs / FIRST / MANIFEST_NAME).write_bytes(encode(OutputManifest, forged))
    (file,) = list_results(kept.client, "job", FileSelection()).files
    assert (file.instance, file.source) == (FIRST, f"job/outputs/{FIRST}/{sha256('best')}")


@pytest.mark.parametrize(
    "source", [f"{FIRST}/{MANIFEST_NAME}", f"%2e%2e/{'0' * 64}", f"{FIRST}/%2e%2e"]
)
def test_only_outputs_can_be_asked_for(kept: Kept, source: str, tmp_path: Path) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    with pytest.raises((NotFound, SpecError)):
        kept.client.fetch(f"job/outputs/{source}", tmp_path / "x", lambda received: None)


def test_a_link_in_the_target_is_not_followed(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    kept.target.mkdir()
    (kept.target / "runs").symlink_to(tmp_path / "elsewhere")
    kept.publish(FIRST, 1.0, [file_of("runs/a.txt", "a")])
    (kept.outputs / FIRST / sha256("a")).write_text("a")
    with pytest.raises(Conflict, match="is no directory"):
        kept.fetch(overwrites=True)
    assert not any((tmp_path / "elsewhere").iterdir())


def test_a_file_that_was_replaced_meanwhile_is_fetched_as_it_is_now(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(FIRST, 1.0, best_pt="first")
    fetch = kept.client.fetch

    def replace_first(source: str, *rest: Any) -> None:
        if sha256("first") in source:
            (kept.outputs / FIRST / sha256("first")).unlink()
            kept.keep(FIRST, 2.0, best_pt="second")
        fetch(source, *rest)

    monkeypatch.setattr(kept.client, "fetch", replace_first)
    kept.fetch()
    assert kept.texts() == {"best.pt": "second"}


def test_the_newest_whole_checkpoint_is_fetched(kept: Kept) -> None:
    kept.save(10, data="ten", rest="r")
    parts = {"__0_0.distcp": "of rank 0", "__1_0.distcp": "of rank 1", "rest.pt": "r"}
    manifest = (kept.save(20, **parts) / MANIFEST).read_text()
    (kept.save(25, **parts) / "__1_0.distcp").unlink()
    (kept.checkpoints / name_of(30)).mkdir()
    (kept.checkpoints / name_of(30) / "__0_0.distcp").write_text("half")
    kept.fetch(checkpoint=True)
    names = {**parts, MANIFEST: manifest}
    assert kept.texts() == {f"{name_of(20)}/{name}": text for name, text in names.items()}


def test_a_checkpoint_that_is_a_link_gives_nothing_away(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    folder = kept.save(10, data="ten")
    (folder / "data").unlink()
    (folder / "data").symlink_to(tmp_path / "secret")
    if kept.api.storage is None:
        with pytest.raises(NotFound):
            kept.client.checkpoint("job")
        with pytest.raises(NotFound):
            source = f"job/checkpoints/{name_of(10)}/data"
            kept.client.fetch(source, tmp_path / "x", lambda received: None)


def test_where_there_is_nothing_the_way_out_is_told(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="job has no outputs: they are uploaded at each checkpoint"):
        kept.fetch()
    with pytest.raises(
        NotFound, match=r"no whole checkpoint in .* without --checkpoint says what"
    ):
        kept.fetch(checkpoint=True)
    with pytest.raises(UnknownJob, match="castor status lists all jobs"):
        list_results(kept.client, "nobody", FileSelection())
    with pytest.raises(NotAllowed):
        list_results(kept.api.stranger("no token"), "job", FileSelection())
    kept.keep(FIRST, 1.0, best_pt="best")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpecError, match="can't be written"):
        fetch_results(kept.client, "job", tmp_path / "file", FileSelection(), False)


def test_an_ended_job_without_outputs_names_what_is_left_of_it(kept: Kept) -> None:
    world = kept.api.world
    world.store.jobs.set_phase("job", JobPhase.STOPPED, world.clock.now())
    with pytest.raises(NotFound, match="no checkpoint was saved; castor logs job prints its log"):
        kept.fetch()
    kept.save(10, data="ten")
    with pytest.raises(
        NotFound, match=r"job --checkpoint fetches its newest checkpoint, step-0+10"
    ):
        kept.fetch()
    fetched = kept.fetch(checkpoint=True)
    assert fetched.checkpoint == name_of(10)


def test_outputs_without_a_checkpoint_are_counted(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    with pytest.raises(NotFound, match=r"without --checkpoint fetches its 1 output file$"):
        kept.fetch(checkpoint=True)
    assert kept.fetch().checkpoint is None


def test_a_trial_says_where_its_files_are(kept: Kept) -> None:
    kept.client.submit(replace(SPEC, name="trial", study="sweep"))
    with pytest.raises(NotFound, match=r"is a trial of sweep, .* hpo.upload_artifact keeps files"):
        list_results(kept.client, "trial", FileSelection())


def test_outputs_above_the_limits_are_named(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    manifest = OutputManifest("job", FIRST, 1.0, (file_of("best.pt", "best"),), ("huge.pt",))
    (kept.outputs / FIRST / MANIFEST_NAME).write_bytes(encode(OutputManifest, manifest))
    assert list_results(kept.client, "job", FileSelection()).left_out == ("huge.pt",)


def test_a_job_of_another_name_has_outputs_of_its_own(kept: Kept) -> None:
    kept.keep(FIRST, 1.0, best_pt="best")
    kept.client.submit(replace(SPEC, name="other"))
    with pytest.raises(NotFound):
        list_results(kept.client, "other", FileSelection())
