"""Node tokens that a lost controller issued after the backup of its store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotAllowed
from autoscaler.service.access.authentication import Authentication
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.settings import Restoration
from tests.conformance.store_examples import NOW, add_job, launch

KEY = b"k" * 32


class LostController:
    """A controller whose store was copied at `NOW`, and the controller restored from the copy."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.clock = VirtualClock(NOW - 100)
        self._directory = directory
        self._stack = stack
        self.store = open_store(f"sqlite:///{directory / 'lost.db'}")
        stack.callback(self.store.close)
        add_job(self.store)
        self.instance = launch(self.store)
        self.tokens = Authentication(self.store, KEY, self.clock)

    def join(self) -> str:
        self.tokens.issue(self.instance)
        join_token = self.tokens.join_token(self.instance)
        return self.tokens.join(join_token, self.instance.id, "key of the agent")

    def back_up(self) -> None:
        self.store.close()
        shutil.copy(self._directory / "lost.db", self._directory / "restored.db")

    def restore(self, is_noted: bool = True, key: bytes = KEY) -> Authentication:
        store = open_store(f"sqlite:///{self._directory / 'restored.db'}")
        self._stack.callback(store.close)
        if is_noted:
            store.settings.note_restoration(Restoration(NOW, NOW + 1000))
        return Authentication(store, key, self.clock)


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[LostController]:
    with ExitStack() as stack:
        yield LostController(tmp_path, stack)


def test_an_agent_that_joined_after_the_backup_goes_on(lost: LostController) -> None:
    lost.back_up()
    lost.clock.advance(200)
    token = lost.join()
    restored = lost.restore()
    assert restored.reporting_node(token).id == lost.instance.id
    assert restored.working_node(token).id == lost.instance.id


def test_its_token_is_renewed_and_expires_as_others(lost: LostController) -> None:
    lost.back_up()
    lost.clock.advance(200)
    token = lost.join()
    restored = lost.restore()
    lost.clock.advance(2200)
    renewed = restored.renewed(token, lost.instance)
    assert renewed is not None
    lost.clock.advance(2200)
    assert restored.node(renewed).id == lost.instance.id
    with pytest.raises(NotAllowed, match="has expired"):
        restored.node(token)


def test_tokens_of_before_the_backup_must_be_in_it(lost: LostController) -> None:
    replaced, kept = lost.join(), lost.join()
    lost.back_up()
    lost.clock.advance(200)
    restored = lost.restore()
    assert restored.node(kept).id == lost.instance.id
    with pytest.raises(NotAllowed):
        restored.node(replaced)


def test_tokens_of_after_the_restoration_must_be_known(lost: LostController) -> None:
    lost.back_up()
    lost.clock.advance(100 + 1000 + 301)
    token = lost.join()
    with pytest.raises(NotAllowed):
        lost.restore().node(token)


def test_without_a_restoration_no_unknown_token_is_good(lost: LostController) -> None:
    lost.back_up()
    lost.clock.advance(200)
    token = lost.join()
    with pytest.raises(NotAllowed):
        lost.restore(is_noted=False).node(token)


def test_a_token_that_was_changed_or_signed_by_another_key_is_refused(
    lost: LostController,
) -> None:
    lost.back_up()
    lost.clock.advance(200)
    token = lost.join()
    issued, instance, random, signature = token.split("~")
    forged = [
        "~".join((issued, "digits-0-2", random, signature)),
        "~".join((f"{float(issued) + 1:.3f}", instance, random, signature)),
        "~".join((issued, instance, random)),
        "~".join((issued, instance, random, "")),
        "~~~",
        "é~é",
        "",
    ]
    restored = lost.restore()
    for other in forged:
        with pytest.raises(NotAllowed):
            restored.node(other)
    with pytest.raises(NotAllowed):
        lost.restore(key=b"o" * 32).node(token)
