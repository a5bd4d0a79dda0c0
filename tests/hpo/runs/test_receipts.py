from __future__ import annotations

from decimal import Decimal

import optuna
import pytest

import hpo
from autoscaler.domain.errors import UnknownJob
from autoscaler.domain.time_use import CostCategory
from autoscaler.wire.client import Client
from autoscaler.wire.cost_messages import CategoryView, CostSplitView, ReceiptView


class KnownJobs(Client):
    """Controller that knows the receipts of two jobs."""

    def __init__(self) -> None:
        self._shares = {"study-0": 0.5, "study-0.1": 1.0}

    def receipt(self, name: str) -> ReceiptView:
        if name not in self._shares:
            raise UnknownJob(f"no job {name}")
        share = self._shares[name]
        part = CategoryView(CostCategory.USEFUL, 100 * share, Decimal(1), share)
        return ReceiptView(name, True, CostSplitView(Decimal(2), 100, share, (part,)))


def test_a_trial_costs_what_all_its_jobs_cost() -> None:
    study = optuna.create_study()
    for user_attrs in (
        {"castor:job": "study-0.1", "castor:earlier_jobs": ["study-0"]},
        {"castor:job": "new-0123456789abcdef"},
        {"castor:job": "study-unknown"},
        {"castor:job": "retry-of-3"},
        {},
    ):
        study.add_trial(optuna.trial.create_trial(value=1.0, user_attrs=user_attrs))
    costs = hpo.receipts(study, KnownJobs())
    assert costs == {
        0: {
            **{"usd": 4.0, "billed_seconds": 200.0, "useful_usd": 2.0, "useful_seconds": 150.0},
            "productive_share": pytest.approx(0.75),
        }
    }
    assert study.user_attrs["castor:receipts"] == {"0": costs[0]}
