"""Contract of a store for answers to requests with an idempotency key."""

from __future__ import annotations

import pytest

from autoscaler.domain.errors import Conflict
from autoscaler.store.repositories.answers import KEPT_SECONDS, KeptAnswer
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, spec

ANSWER = KeptAnswer("hash", 200, '{"id": "digits"}', NOW)


class AnswersConformance:
    def test_an_answer_is_kept_for_a_day(self, store: Store) -> None:
        assert store.answers.get("key", NOW) is None
        store.answers.keep("key", ANSWER)
        secret = KeptAnswer("other", 200, None, NOW)
        store.answers.keep("secret", secret)
        assert store.answers.get("key", NOW + KEPT_SECONDS) == ANSWER
        assert store.answers.get("secret", NOW) == secret
        assert store.answers.get("key", NOW + KEPT_SECONDS + 1) is None

    def test_a_key_has_one_answer_until_it_is_old(self, store: Store) -> None:
        store.answers.keep("key", ANSWER)
        with pytest.raises(Conflict, match="under way"):
            store.answers.keep("key", ANSWER)
        later = KeptAnswer("hash", 200, "{}", NOW + KEPT_SECONDS + 1)
        store.answers.keep("key", later)
        assert store.answers.get("key", later.at_seconds) == later

    def test_an_answer_is_stored_with_what_the_request_creates(self, store: Store) -> None:
        with store.grouped():
            store.jobs.add(spec(), NOW)
            store.answers.keep("key", ANSWER)
        assert store.answers.get("key", NOW) == ANSWER
        assert store.jobs.get("digits").spec.name == "digits"
