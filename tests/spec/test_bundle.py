from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.spec.bundle import Bundle, inspect, pack, require_files, unpack


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as entries:
        return entries.getnames()


def packed_names(directory: Path, archive: Path) -> list[str]:
    pack(directory, archive)
    return names_in(archive)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "job.tar.gz"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = write(tmp_path / "tree", {"train.py": "print(1)\n", "lib/a.py": "A = 1\n"})
    (directory / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (directory / "run.sh").chmod(0o750)
    (directory / "lib" / "main.py").symlink_to("../train.py")
    return directory


class TestPack:
    def test_what_is_packed_is_unpacked(self, tree: Path, archive: Path, tmp_path: Path) -> None:
        bundle = pack(tree, archive)
        copy = tmp_path / "nodes" / "copy"
        assert unpack(archive, copy, bundle.sha256) == bundle
        assert bundle.files == 4
        assert bundle.bytes == len("print(1)\n") + len("A = 1\n") + len("#!/bin/sh\n")
        assert (copy / "train.py").read_text(encoding="utf-8") == "print(1)\n"
        assert (copy / "train.py").stat().st_mode & 0o777 == 0o644
        assert (copy / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (copy / "lib" / "main.py").readlink() == Path("../train.py")
        assert pack(copy, archive) == bundle
        assert [path.name for path in copy.parent.iterdir()] == ["copy"]

    def test_the_same_tree_is_the_same_archive(self, tree: Path, tmp_path: Path) -> None:
        first = pack(tree, tmp_path / "first")
        os.utime(tree / "train.py", (1, 1))
        (tree / "train.py").chmod(0o600)
        (tree / "empty").mkdir()
        assert pack(tree, tmp_path / "second") == first
        content = (tmp_path / "first").read_bytes()
        assert content == (tmp_path / "second").read_bytes()
        assert content[4:8] == bytes(4), "the time in the header of gzip"

    def test_the_hash_is_not_that_of_the_compression(
        self, tree: Path, archive: Path, tmp_path: Path
    ) -> None:
        bundle = pack(tree, archive)
        archive.write_bytes(gzip.compress(gzip.decompress(archive.read_bytes()), 1))
        assert unpack(archive, tmp_path / "copy", bundle.sha256) == bundle

    @pytest.mark.parametrize("change", ["content", "name", "mode", "link", "boundary"])
    def test_every_change_changes_the_hash(self, tree: Path, archive: Path, change: str) -> None:
        before = pack(tree, archive).sha256
        match change:
            case "content":
                (tree / "train.py").write_text("print(2)\n", encoding="utf-8")
            case "name":
                (tree / "train.py").rename(tree / "trian.py")
            case "mode":
                (tree / "run.sh").chmod(0o640)
            case "link":
                (tree / "lib" / "main.py").unlink()
                (tree / "lib" / "main.py").symlink_to("a.py")
            case "boundary":
                (tree / "train.py").rename(tree / "lib" / "train.py")
        assert pack(tree, archive).sha256 != before

    def test_too_large_names_what_to_leave_out(self, tree: Path, archive: Path) -> None:
        write(tree, {"data/a.bin": "x" * 70_000, "data/b.bin": "x" * 50_000, "model": "x" * 9_000})
        with pytest.raises(SpecError) as refused:
            pack(tree, archive, maximum_bytes=100_000)
        assert str(refused.value) == (
            "the working directory has 129.0KB, over the limit of 100.0KB; largest are "
            "data/ (120.0KB), model (9.0KB), run.sh (10B). List in .castorignore "
            "files that the job does not need, or raise bundle_limit"
        )
        assert not archive.exists()
        write(tree, {".castorignore": "data/"})
        pack(tree, archive, maximum_bytes=100_000)

    def test_a_file_that_goes_meanwhile_leaves_no_archive(
        self, tree: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tarfile.TarFile, "addfile", _vanish)
        with pytest.raises(SpecError, match=r"can't be read .*list it in \.castorignore"):
            pack(tree, archive)
        assert list(archive.parent.glob("job.tar.gz*")) == []


def _vanish(*_: object) -> None:
    raise FileNotFoundError(2, "No such file or directory")


class TestIgnored:
    def test_gitignore_counts(self, tree: Path, archive: Path) -> None:
        write(
            tree,
            {
                ".gitignore": "*.pt\n!keep.pt\n/build\nlogs/\n!logs/x\ndata/*\n!data/small\n#x\n",
                "a.pt": "",
                "lib/b.pt": "",
                "keep.pt": "",
                "build/x": "",
                "logs/x": "",
                "lib/build/x": "",
                "data/large": "",
                "data/small": "",
            },
        )
        assert packed_names(tree, archive) == [
            ".gitignore",
            "data/small",
            "keep.pt",
            "lib/a.py",
            "lib/build/x",
            "lib/main.py",
            "run.sh",
            "train.py",
        ]

    def test_castorignore_takes_the_place_of_gitignore(self, tree: Path, archive: Path) -> None:
        write(tree, {".gitignore": "train.py", ".castorignore": "lib"})
        assert packed_names(tree, archive) == [
            ".castorignore",
            ".gitignore",
            "run.sh",
            "train.py",
        ]

    def test_the_deepest_ignore_file_has_the_last_word(self, tree: Path, archive: Path) -> None:
        write(
            tree,
            {
                ".gitignore": "*.log\n",
                "a.log": "",
                "lib/.gitignore": "!*.log\n/a.py\n",
                "lib/b.log": "",
                "lib/deep/a.py": "",
            },
        )
        assert packed_names(tree, archive) == [
            ".gitignore",
            "lib/.gitignore",
            "lib/b.log",
            "lib/deep/a.py",
            "lib/main.py",
            "run.sh",
            "train.py",
        ]

    def test_some_things_are_never_packed(self, tree: Path, archive: Path) -> None:
        before = packed_names(tree, archive)
        write(tree, {".git/HEAD": "", ".venv/bin/python": "", "lib/__pycache__/a.pyc": ""})
        assert packed_names(tree, archive) == before

    def test_a_pattern_that_means_nothing_is_told(self, tree: Path, archive: Path) -> None:
        write(tree, {".gitignore": "!\n"})
        with pytest.raises(SpecError, match=r"\.gitignore: .*correct or remove the pattern"):
            pack(tree, archive)


class TestUnpackable:
    @pytest.mark.parametrize(
        "target", ["../outside", "/etc/hostname", "lib/../../outside", "up/.."]
    )
    def test_links_that_leave_are_named(self, tree: Path, archive: Path, target: str) -> None:
        (tree / "up").symlink_to(".")
        (tree / "bad").symlink_to(target)
        with pytest.raises(SpecError, match=f"leave the directory.*: bad -> {target};"):
            pack(tree, archive)
        write(tree, {".castorignore": "bad"})
        pack(tree, archive)

    def test_an_absolute_link_to_the_inside_is_named(self, tree: Path, archive: Path) -> None:
        (tree / "bad").symlink_to(tree / "train.py")
        with pytest.raises(SpecError, match="make them relative"):
            pack(tree, archive)

    def test_a_link_in_a_circle_is_only_a_link(self, tree: Path, archive: Path) -> None:
        (tree / "round").symlink_to("round")
        assert "round" in packed_names(tree, archive)

    def test_a_pipe_is_named(self, tree: Path, archive: Path) -> None:
        os.mkfifo(tree / "pipe")
        with pytest.raises(SpecError, match="pipe: is neither a file, a directory nor a link"):
            pack(tree, archive)

    def test_a_directory_that_is_not_there(self, tmp_path: Path, archive: Path) -> None:
        with pytest.raises(SpecError, match="no-such: can't be read"):
            pack(tmp_path / "no-such", archive)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def forged(path: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info in entries:
            info.size = 3 if info.isreg() else 0
            archive.addfile(info, io.BytesIO(b"abc"))
    return path


class TestUnpack:
    @pytest.mark.parametrize(
        ("complaint", "entries"),
        [
            ("leaves the bundle", [entry("/no-such-root/file")]),
            ("leaves the bundle", [entry("../outside")]),
            ("leaves the bundle", [entry("a/../../outside")]),
            ("leaves the bundle", [entry(".")]),
            ("neither a file nor a link", [entry("null", tarfile.CHRTYPE)]),
            ("neither a file nor a link", [entry("pipe", tarfile.FIFOTYPE)]),
            ("neither a file nor a link", [entry("hard", tarfile.LNKTYPE, "train.py")]),
            ("leaves the bundle", [entry("link", tarfile.SYMTYPE, "../outside")]),
            ("leaves the bundle", [entry("link", tarfile.SYMTYPE, "/no-such-root")]),
            ("is damaged", [entry("link", tarfile.SYMTYPE, "outside"), entry("link/file")]),
            ("is damaged", [entry("file"), entry("file/below")]),
            ("is damaged", [entry("file"), entry("file")]),
            (
                "leaves the bundle",
                [
                    entry("a/b/c/top", tarfile.SYMTYPE, "../../.."),
                    entry("a/out", tarfile.SYMTYPE, "b/c/top/../outside"),
                ],
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else value[-1].name,
    )
    def test_what_no_bundle_holds_is_refused(
        self, archive: Path, tmp_path: Path, complaint: str, entries: list[tarfile.TarInfo]
    ) -> None:
        nodes = tmp_path / "nodes"
        with pytest.raises(SpecError, match=complaint):
            unpack(forged(archive, *entries), nodes / "copy", "0" * 64)
        assert list(nodes.iterdir()) == []
        assert not (tmp_path / "outside").exists()

    def test_another_bundle_is_refused(self, tree: Path, archive: Path, tmp_path: Path) -> None:
        pack(tree, archive)
        with pytest.raises(SpecError, match="not 000000000000: it was changed or damaged"):
            unpack(archive, tmp_path / "copy", "0" * 64)
        assert not (tmp_path / "copy").exists()

    def test_what_an_archive_holds_is_known_without_unpacking(
        self, tree: Path, archive: Path
    ) -> None:
        bundle = pack(tree, archive)
        assert inspect(archive, 100_000) == bundle
        with gzip.open(archive) as unzipped:
            content = unzipped.read()
        archive.write_bytes(gzip.compress(content, 1))
        assert inspect(archive, 100_000).sha256 == bundle.sha256, "compression changes nothing"
        with pytest.raises(SpecError, match="has more than"):
            inspect(archive, 1_000)

    def test_a_header_of_any_size_is_not_read(self, archive: Path) -> None:
        header = tarfile.TarInfo("header")
        header.type, header.size = tarfile.XHDTYPE, 1 << 32
        with gzip.open(archive, "wb") as zipped:
            zipped.write(header.tobuf(tarfile.PAX_FORMAT) + b"x" * 10_000)
        with pytest.raises(SpecError, match="an oversized header"):
            inspect(archive, 1 << 50)

    def test_an_archive_that_unpacks_to_very_much_is_refused(self, archive: Path) -> None:
        file = tarfile.TarInfo("zeros")
        file.size = 1 << 24
        with gzip.open(archive, "wb") as zipped:
            zipped.write(file.tobuf(tarfile.PAX_FORMAT) + bytes(file.size) + bytes(1024))
        assert archive.stat().st_size < 1 << 15
        with pytest.raises(SpecError, match=r"has more than 1\.0 ?MB"):
            inspect(archive, 1_000_000)

    @pytest.mark.parametrize(
        "content", [b"", b"garbage", gzip.compress(b"garbage" * 200, mtime=0)]
    )
    def test_what_is_no_archive_is_refused(self, archive: Path, content: bytes) -> None:
        archive.write_bytes(content)
        with pytest.raises(SpecError, match="is damaged"):
            inspect(archive, 100_000)

    @pytest.mark.parametrize("keep", [0.0, 0.3, 0.6])
    def test_a_cut_archive_is_refused(
        self, tree: Path, archive: Path, tmp_path: Path, keep: float
    ) -> None:
        bundle = pack(tree, archive)
        content = archive.read_bytes()
        archive.write_bytes(content[: int(len(content) * keep)])
        with pytest.raises(SpecError):
            unpack(archive, tmp_path / "copy", bundle.sha256)
        assert not (tmp_path / "copy").exists()

    @settings(max_examples=60, deadline=None)
    @given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def test_a_flipped_bit_is_found_or_harmless(
        self, tmp_path_factory: pytest.TempPathFactory, position: float, bit: int
    ) -> None:
        folder = tmp_path_factory.mktemp("flip")
        tree = write(folder / "tree", {"train.py": "print(1)\n" * 20, "a/b.py": "B = 1\n"})
        bundle = pack(tree, folder / "archive")
        content = bytearray((folder / "archive").read_bytes())
        content[int(position * len(content))] ^= 1 << bit
        (folder / "archive").write_bytes(content)
        try:
            assert unpack(folder / "archive", folder / "copy", bundle.sha256) == bundle
        except SpecError:
            assert not (folder / "copy").exists()

    def test_an_existing_directory_is_left_alone(
        self, tree: Path, archive: Path, tmp_path: Path
    ) -> None:
        bundle = pack(tree, archive)
        copy = write(tmp_path / "copy", {"mine": "1"})
        with pytest.raises(Conflict, match="exists: remove it"):
            unpack(archive, copy, bundle.sha256)
        assert [path.name for path in copy.iterdir()] == ["mine"]


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


class TestRef:
    @pytest.fixture
    def repository(self, tree: Path) -> Path:
        git(tree, "init", "--initial-branch=main")
        git(tree, "add", ".")
        git(tree, "commit", "--message=first")
        return tree

    def test_a_clean_tree_and_its_commit_are_one_bundle(
        self, repository: Path, archive: Path
    ) -> None:
        assert pack(repository, archive, ref="HEAD") == pack(repository, archive)

    def test_a_commit_is_packed_and_not_the_files(self, repository: Path, archive: Path) -> None:
        committed = pack(repository, archive)
        write(repository, {"train.py": "print(2)\n", "new.py": ""})
        assert pack(repository, archive, ref="main") == committed
        assert pack(repository, archive) != committed

    def test_a_directory_of_a_repository(self, repository: Path, archive: Path) -> None:
        (repository / "lib" / "main.py").unlink()
        git(repository, "commit", "--all", "--message=no link")
        pack(repository / "lib", archive, ref="HEAD")
        assert names_in(archive) == ["a.py"]

    def test_a_link_that_leaves_the_packed_part_is_named(
        self, repository: Path, archive: Path
    ) -> None:
        with pytest.raises(SpecError, match=r'the link "main\.py" -> "\.\./train\.py" leaves'):
            pack(repository / "lib", archive, ref="HEAD")

    def test_what_is_committed_counts_even_if_ignored(
        self, repository: Path, archive: Path
    ) -> None:
        write(repository, {".gitignore": "train.py\n", ".castorignore": "run.sh\n"})
        git(repository, "add", ".")
        git(repository, "commit", "--message=ignore")
        pack(repository, archive, ref="HEAD")
        assert names_in(archive) == [
            ".castorignore",
            ".gitignore",
            "lib/a.py",
            "lib/main.py",
            "train.py",
        ]

    @pytest.mark.parametrize("ref", ["no-such", "--output=x", ""])
    def test_an_unknown_ref(self, repository: Path, archive: Path, ref: str) -> None:
        with pytest.raises(SpecError, match=f'ref "{ref}" of .* not a valid object name'):
            pack(repository, archive, ref=ref)

    def test_no_repository(self, tmp_path: Path, archive: Path) -> None:
        bare = write(tmp_path / "bare", {"a": ""})
        with pytest.raises(SpecError, match=r'ref "main" of .*: not a git repository'):
            pack(bare, archive, ref="main")

    def test_no_git(
        self, repository: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        with pytest.raises(SpecError, match="git is not installed"):
            pack(repository, archive, ref="main")


def test_the_limit_counts_for_commits_too(tmp_path: Path, archive: Path) -> None:
    tree = write(tmp_path / "tree", {"a": "x" * 2_000})
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "--message=first")
    with pytest.raises(SpecError, match="over the limit"):
        pack(tree, archive, ref="HEAD", maximum_bytes=1_000)


def test_an_empty_tree_is_a_bundle(tmp_path: Path, archive: Path) -> None:
    (tmp_path / "tree").mkdir()
    bundle = pack(tmp_path / "tree", archive)
    assert bundle == Bundle(bundle.sha256, 0, 0)
    unpack(archive, tmp_path / "copy", bundle.sha256)
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize("ignore_file", [".gitignore", ".castorignore"])
def test_an_ignore_file_that_leaves_nothing_is_refused_by_name(
    tmp_path: Path, ignore_file: str
) -> None:
    tree = write(tmp_path / "tree", {ignore_file: "*\n", "train.py": ""})
    bundle = pack(tree, tmp_path / "bundle")
    with pytest.raises(SpecError, match=rf"working_directory: no file .*\{ignore_file} ignores"):
        require_files(bundle, tree)
    (tmp_path / "empty").mkdir()
    require_files(bundle, tmp_path / "empty")
