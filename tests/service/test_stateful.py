"""Random sequences of requests of several people, against a model of what they may change."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from autoscaler.domain.access import Role
from autoscaler.domain.errors import CastorError, Conflict, Forbidden, NotAllowed
from autoscaler.domain.instance import Desired
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.text import printable
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.client import Client
from autoscaler.wire.messages import Change
from tests.controller.world import World
from tests.service.agents import SPEC
from tests.service.conftest import Api, served

OWNER: Final = "owner"
PEOPLE: Final = ("ada", "bob", "cy")
# After a stop is requested: 90 s for the script to drain, at 30 s a tick.
DRAIN_TICKS: Final = 6


@dataclass
class Member:
    """Person of the model, with the client of that person's token."""

    role: Role
    client: Client
    is_removed: bool = False

    def may_change(self, owner: str, name: str) -> bool:
        """Return whether this person, of that name, may change a job of the owner."""
        is_own = self.role is Role.SUBMITTER and owner == name
        return not self.is_removed and (self.role.covers(Role.OPERATOR) or is_own)


@dataclass
class ModelledJob:
    """Job of the model."""

    owner: str
    is_stopped: bool = False


class Service(RuleBasedStateMachine):
    """Requests in any order; the model says which are permitted and what they change."""

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.api: Api
        self.people: dict[str, Member] = {}
        self.jobs: dict[str, ModelledJob] = {}
        self.is_frozen = False
        self.changes = 0

    @initialize()
    def begin(self) -> None:
        directory = Path(tempfile.mkdtemp())
        self.stack.callback(shutil.rmtree, directory, ignore_errors=True)
        self.api = self.stack.enter_context(
            served(World(directory, template=self.template), directory)
        )
        self.people[OWNER] = Member(Role.ADMIN, self.api.client)

    def teardown(self) -> None:
        for member in self.people.values():
            member.client.close()
        self.stack.close()

    @rule(name=st.sampled_from(PEOPLE), role=st.sampled_from(Role))
    def invite(self, name: str, role: Role) -> None:
        invitation = self.people[OWNER].client.invite(name, InvitationRequest(role=role))
        self.changes += 1
        if name in self.people:
            self.people[name].client.close()
        self.people[name] = Member(role, self.api.stranger(invitation.token))

    @precondition(lambda self: len(self.people) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.people.keys() - {OWNER})))
        if self.people[name].is_removed:
            return
        self.people[name].is_removed = True
        self.people[OWNER].client.remove_person(name)
        self.changes += 1

    @rule(data=st.data(), maximum=st.integers(-1, 3))
    def submit(self, data: st.DataObject, maximum: int) -> None:
        name, member = self._anybody(data)
        spec = replace(SPEC, name=f"job-{len(self.jobs)}", instances=InstanceBounds(1, maximum))
        may = not member.is_removed and member.role.covers(Role.SUBMITTER)
        try:
            job = member.client.submit(spec)
        except (Forbidden, NotAllowed):
            assert not may
        except CastorError:
            assert maximum < 1, "a sound job was refused"
        else:
            assert may and maximum >= 1
            self.jobs[job.id] = ModelledJob(name)
            self.api.world.set_target(job.id, 1)
            self.changes += 1

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), priority=st.sampled_from((1.0, 4.0, float("nan"), -1.0)))
    def change(self, data: st.DataObject, priority: float) -> None:
        name, member = self._anybody(data)
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        try:
            member.client.change(job, Change(priority=priority))
        except (Forbidden, NotAllowed):
            assert not member.may_change(self.jobs[job].owner, name)
        except Conflict:
            assert self.jobs[job].is_stopped
        except CastorError:
            assert not priority > 0
        else:
            assert member.may_change(self.jobs[job].owner, name) and priority > 0
            self.changes += 1

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        name, member = self._anybody(data)
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        try:
            member.client.stop(job)
        except (Forbidden, NotAllowed):
            assert not member.may_change(self.jobs[job].owner, name)
        except Conflict:
            assert self.jobs[job].is_stopped
        else:
            assert member.may_change(self.jobs[job].owner, name)
            self.jobs[job].is_stopped = True
            self.changes += 1

    @rule(data=st.data(), freezes=st.booleans())
    def freeze(self, data: st.DataObject, freezes: bool) -> None:
        _, member = self._anybody(data)
        try:
            member.client.freeze() if freezes else member.client.unfreeze()
        except (Forbidden, NotAllowed):
            assert member.is_removed or not member.role.covers(Role.OPERATOR)
        else:
            assert not member.is_removed and member.role.covers(Role.OPERATOR)
            self.is_frozen = freezes
            self.changes += 1

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), instances=st.integers(0, 2))
    def plan(self, data: st.DataObject, instances: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.api.world.set_target(job, instances)

    @rule(ticks=st.integers(1, 3))
    def tick(self, ticks: int) -> None:
        launched = len(self.api.world.cloud.instances())
        self.api.world.tick(ticks)
        after = len(self.api.world.cloud.instances())
        assert not self.is_frozen or after == launched, "launched while frozen"

    @invariant()
    def people_read_what_the_model_holds(self) -> None:
        if not self.people:
            return
        for name, member in self.people.items():
            if member.is_removed:
                with pytest.raises(NotAllowed) as refusal:
                    member.client.jobs()
                assert printable(str(refusal.value)) == str(refusal.value), name
                continue
            jobs = {job.id: job for job in member.client.jobs()}
            assert jobs.keys() == self.jobs.keys(), name

    @invariant()
    def each_change_has_one_row_in_the_audit_log(self) -> None:
        if not self.people:
            return
        rows = self.people[OWNER].client.audit(limit=1_000)
        assert sum(bool(row.token) for row in rows) == self.changes
        launches = [row.subject for row in rows if not row.token]
        assert len(launches) == len(set(launches)) == len(self.api.world.cloud.instances())

    @precondition(lambda self: not self.is_frozen)
    @rule()
    def stopped_jobs_end_with_their_instances(self) -> None:
        self.api.world.tick(DRAIN_TICKS, seconds=30.0)
        for job, modelled in self.jobs.items():
            held = self.api.world.store.instances.of_job(job)
            if modelled.is_stopped:
                assert all(instance.desired is Desired.ABSENT for instance in held)
                assert self.people[OWNER].client.job(job).phase.is_final
        self.api.world.assert_nothing_leaked()

    def _anybody(self, data: st.DataObject) -> tuple[str, Member]:
        name = data.draw(st.sampled_from(sorted(self.people)))
        return name, self.people[name]


def test_requests_in_any_order_change_what_the_model_says(template: Path) -> None:
    Service.template = template
    run_state_machine_as_test(
        Service,
        settings=settings(
            max_examples=12,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a shrunk example takes minutes
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
