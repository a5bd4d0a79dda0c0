from __future__ import annotations

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.lighthouse_watch import _alive_on

PAGE = """
[0/1 participants healthy][1 heartbeating]
<li class="heartbeat
    old
  ">
    r0:abc: seen 1.700933122s ago
  </li>
  <li class="heartbeat

  ">
    r2:ghi: seen 0.000674647s ago
  </li>
"""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def attendance(clock: VirtualClock) -> Attendance:
    attendance = Attendance(clock)
    attendance.hear(["a", "b"])
    attendance.form(["a", "b"])
    return attendance


def test_a_joiner_and_a_loss_are_seen_as_soon_as_they_are_heard(attendance: Attendance) -> None:
    assert not attendance.differs
    attendance.hear(["a", "b", "c"])
    assert attendance.differs and not attendance.misses_member
    attendance.hear(["a"])
    assert attendance.differs and attendance.misses_member


def test_who_could_not_get_in_is_tried_again_after_a_second_only(
    attendance: Attendance, clock: VirtualClock
) -> None:
    attendance.hear(["a", "b", "stuck"])
    attendance.form(["a", "b"])
    attendance.hear(["a", "b", "stuck"])
    assert not attendance.differs
    clock.sleep(1.0)
    assert attendance.differs


def test_while_nothing_is_heard_all_members_are_there(
    attendance: Attendance, clock: VirtualClock
) -> None:
    clock.sleep(10.0)
    attendance.hear(None)
    assert not attendance.differs and not attendance.misses_member


def test_a_member_that_announced_its_leave_is_not_lost(attendance: Attendance) -> None:
    attendance.expect_leave()
    attendance.hear(["a"])
    assert attendance.differs and not attendance.misses_member
    attendance.form(["a", "b"])
    attendance.hear(["b"])
    assert attendance.misses_member, "the next membership expects nothing"


def test_only_fresh_heartbeats_of_the_status_page_count() -> None:
    assert _alive_on(PAGE) == {"r2:ghi": 0.000674647}
