"""Profiles read from files, and interpolation between measurements."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.simulator.profiles.gradients import LARGEST_NOISE_BATCHES
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.profiles.rows import read_rows
from autoscaler.simulator.profiles.step_times import (
    NEAREST_WITHIN_FACTOR,
    ProfiledStepTimes,
    Unprofiled,
    normalised,
)
from tests.simulator.profile_files import (
    APPLICATION,
    BATCHES,
    placement_lines,
    scalability_lines,
    step_row,
    write,
)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    directory = tmp_path_factory.mktemp("profiles")
    write(directory)
    return read_profiles(directory)[APPLICATION]


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("CASTOR_DATA")
    if folder is None:
        pytest.skip("CASTOR_DATA is not set: no measured profiles")
    return Path(folder)


@pytest.fixture(scope="module")
def measured(data: Path) -> dict[str, Profile]:
    return read_profiles(data / "pollux" / "app-profiles", data / "hetero")


class TestStepTimes:
    def test_every_measured_placement_is_answered_exactly(self, profile: Profile) -> None:
        for line in list(placement_lines())[1:]:
            placement, batch, step, sync = line.split(",")
            times = profile.step_times("default", tuple(map(int, placement)), float(batch))
            assert times == ProfiledStepTimes(float(step), float(sync))

    def test_rotations_of_a_placement_are_the_same_ring(self, profile: Profile) -> None:
        assert normalised((4, 2, 3)) == (2, 3, 4)
        assert normalised((3, 2, 4)) == (2, 4, 3)
        assert profile.step_times("default", (3, 1), 16) == profile.step_times(
            "default", (1, 3), 16
        )

    def test_a_size_is_the_mean_of_its_placements(self, profile: Profile, tmp_path: Path) -> None:
        folder = write(tmp_path)
        with (folder / "placements.csv").open("a") as file:
            file.writelines(f"1111,{batch},9,1\n" for batch in BATCHES)
        changed = read_profiles(tmp_path)[APPLICATION]
        row = step_row(4, 4, 16).split(",")
        # Placement 2111 has 5 devices on 4 nodes: a quarter of the way from 4 devices to 8.
        four = mean((float(row[1]), 9.0))
        eight = profile.step_times("default", (2, 2, 2, 2), 16).step_seconds
        times = changed.step_times("default", (2, 1, 1, 1), 16)
        assert times.step_seconds == pytest.approx(0.75 * four + 0.25 * eight)

    def test_nodes_between_those_measured_keep_their_devices(self, profile: Profile) -> None:
        on_four = profile.step_times("default", (4,) * 4, 16)
        on_eight = profile.step_times("default", (4,) * 8, 16)
        on_six = profile.step_times("default", (4,) * 6, 16)
        part = np.log2(6 / 4)
        expected = (1 - part) * on_four.step_seconds + part * on_eight.step_seconds
        assert on_six.step_seconds == pytest.approx(expected)

    def test_a_little_outside_is_the_nearest_and_far_outside_nothing(
        self, profile: Profile
    ) -> None:
        most = int(8 * NEAREST_WITHIN_FACTOR)
        nearest = profile.step_times("default", (4,) * 8, 16)
        assert profile.step_times("default", (4,) * most, 16) == nearest
        assert profile.step_times("default", (5, 5), 16) == profile.step_times(
            "default", (4, 4), 16
        )
        far = r"^toy on default: nodes=11, devices=44: measured are 1 to 8 nodes with 1 to 4 "
        with pytest.raises(Unprofiled, match=far):
            profile.step_times("default", (4,) * (most + 1), 16)
        with pytest.raises(Unprofiled, match="devices=12"):
            profile.device_batches("default", (6, 6))

    def test_a_device_batch_may_be_too_large_but_not_too_small(self, profile: Profile) -> None:
        assert profile.device_batches("default", (4, 4, 4)) == (8, 64)
        for placement in ((4, 4), (4, 4, 4)):
            least = profile.step_times("default", placement, 8)
            assert profile.step_times("default", placement, 1) == least
            for batch in (64.5, 0, -1, float("nan")):
                with pytest.raises(Unprofiled, match=r"measured are 8 to 64$"):
                    profile.step_times("default", placement, batch)

    def test_what_was_not_measured_alike_is_answered_where_both_were(self, tmp_path: Path) -> None:
        path = write(tmp_path) / "scalability.csv"
        short = [line for line in scalability_lines() if not line.startswith("64,")]
        path.write_text("\n".join(short) + "\n")
        assert read_profiles(tmp_path)[APPLICATION].device_batches("default", (4,) * 3) == (8, 16)

    def test_a_kind_that_was_not_measured_is_named_with_those_that_were(
        self, profile: Profile
    ) -> None:
        with pytest.raises(Unprofiled, match=r"toy has no step times on 'v100'.* default"):
            profile.step_times("v100", (1,), 8)

    @pytest.mark.parametrize("placement", [(), (4, 0), (-1,)])
    def test_no_placement_at_all_is_a_mistake_of_the_caller(
        self, profile: Profile, placement: tuple[int, ...]
    ) -> None:
        with pytest.raises(ValueError, match="at least one"):
            profile.step_times("default", placement, 8)

    def test_accumulation_repeats_what_is_not_synchronised(self) -> None:
        assert ProfiledStepTimes(1.0, 0.25).accumulated_seconds(0) == 1.0
        assert ProfiledStepTimes(1.0, 0.25).accumulated_seconds(3) == 3.25

    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=8).map(tuple),
        st.floats(8.0, 64.0),
    )
    def test_what_is_interpolated_lies_between_its_neighbours(
        self, profile: Profile, placement: tuple[int, ...], batch: float
    ) -> None:
        times = profile.step_times("default", placement, batch)
        below = max(size for size in BATCHES if size <= batch)
        above = min(size for size in BATCHES if size >= batch)
        ends = [profile.step_times("default", placement, size) for size in (below, above)]
        steps = sorted(end.step_seconds for end in ends)
        assert steps[0] - 1e-12 <= times.step_seconds <= steps[1] + 1e-12
        assert 0 <= times.sync_seconds < times.step_seconds
        # In this profile time rises with nodes and with devices.
        nodes, devices = len(placement), sum(placement)
        counts = (1, 2, 4, 8)
        fewer = max(count for count in counts if count <= nodes)
        more = min(count for count in counts if count >= nodes)
        low, high = 0.01 * fewer + 0.003 * fewer, 0.01 * more + 0.003 * more * 4
        assert low - 1e-12 <= times.sync_seconds <= high + 1e-12
        if nodes in counts:
            expected = 0.01 * nodes + 0.003 * devices
            assert times.sync_seconds == pytest.approx(expected)

    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=8).map(tuple),
        st.floats(8.0, 64.0),
        st.floats(0.0, 6000.0),
    )
    def test_goodput_is_positive(
        self, profile: Profile, placement: tuple[int, ...], batch: float, progress: float
    ) -> None:
        total = max(batch * sum(placement), profile.initial_batch)
        efficiency = profile.efficiency(progress, total)
        assert 0 < efficiency <= 1
        step_seconds = profile.step_times("default", placement, batch).step_seconds
        assert total * efficiency / step_seconds > 0


class TestGradients:
    def test_a_run_ends_where_the_fastest_batch_did(self, profile: Profile) -> None:
        assert (profile.initial_batch, profile.maximum_batch, profile.epochs) == (16, 64, 3)
        assert profile.epoch_end_examples.tolist() == [1600, 199 * 16, 4800]
        assert profile.total_examples == 4800
        with pytest.raises(ValueError, match="read-only"):
            profile.epoch_end_examples[0] = 0

    @pytest.mark.parametrize(
        ("progress", "batch", "square", "variance"),
        [
            (0, 16, 4.0, 8.0),
            (1599.9, 40, 6.0, 8.0),
            (1600, 40, 3.0, 12.0),
            (1600, 1, 2.0, 8.0),
            (1600, 1000, 4.0, 16.0),
            (9e9, 16, 1.0, 8.0),
        ],
    )
    def test_the_current_epoch_is_linear_in_batch(
        self, profile: Profile, progress: float, batch: float, square: float, variance: float
    ) -> None:
        assert profile.gradients(progress, batch) == (square, variance)
        noise = 16 * variance / square
        assert profile.noise_scale(progress, batch) == noise
        assert profile.efficiency(progress, batch) == (noise + 16) / (noise + batch)

    def test_a_square_of_zero_is_a_noise_scale_that_is_large_but_finite(
        self, profile: Profile
    ) -> None:
        square, variance = profile.gradients(4799, 64)
        assert variance == 32
        assert square > 0
        assert profile.noise_scale(4799, 64) == pytest.approx(16 * LARGEST_NOISE_BATCHES)


class TestPublishedProfiles:
    def test_all_load(self, measured: dict[str, Profile]) -> None:
        names = {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}
        assert set(measured) == names
        for name in names - {"ncf"}:
            assert measured[name].kinds == {"default", "aws", "dgx-ext", "rtx"}
        assert measured["ncf"].kinds == {"default"}

    def test_noise_scales_are_those_published(self, measured: dict[str, Profile]) -> None:
        imagenet, cifar10 = measured["imagenet"], measured["cifar10"]
        assert (imagenet.epochs, cifar10.epochs) == (90, 100)
        assert imagenet.noise_scale(0, 200) == pytest.approx(928, abs=1)
        assert imagenet.noise_scale(imagenet.total_examples, 200) == pytest.approx(
            14_400, rel=0.01
        )
        assert cifar10.noise_scale(0, 128) == pytest.approx(72, abs=1)
        assert cifar10.noise_scale(cifar10.total_examples, 128) == pytest.approx(38_700, rel=0.01)

    def test_measured_placements_are_answered_exactly(
        self, data: Path, measured: dict[str, Profile]
    ) -> None:
        for name in measured.keys() - {"ncf"}:
            for kind in ("aws", "dgx-ext", "rtx"):
                path = data / "hetero" / name / f"placements-{kind}.csv"
                for row in read_rows(path, ("placement", "local_bsz", "step_time", "sync_time")):
                    placement = tuple(int(digit) for digit in row.text("placement"))
                    times = measured[name].step_times(kind, placement, row.count("local_bsz"))
                    assert times.step_seconds == row.positive("step_time")
                    assert times.sync_seconds == row.positive("sync_time")

    def test_larger_sizes_are_answered_exactly(
        self, data: Path, measured: dict[str, Profile]
    ) -> None:
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time")
        for name, profile in measured.items():
            path = data / "pollux" / "app-profiles" / name / "scalability.csv"
            for row in read_rows(path, columns):
                nodes, devices = row.count("num_nodes"), row.count("num_replicas")
                placement = (devices - nodes + 1,) + (1,) * (nodes - 1)
                times = profile.step_times("default", placement, row.count("local_bsz"))
                assert times.step_seconds == row.positive("step_time")
