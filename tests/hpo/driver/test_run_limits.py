from __future__ import annotations

import json
import subprocess
import sys
import types

import cloudpickle
import pytest
from optuna.trial import TrialState, create_trial

from hpo.driver.ended_trials import EndedTrial
from hpo.driver.run_limits import error_names, is_caught

SCRIPT = """
class Training:
    class Diverged(Exception):
        pass

def local_class():
    class TooSlow(Exception):
        pass
    return TooSlow
"""

INSTANCE = """
import json, pickle, sys
from hpo.protocol.requests import failure_request
kind = pickle.load(sys.stdin.buffer)
print(json.dumps(failure_request("it has failed", kind()).arguments))
"""


@pytest.mark.parametrize("expression", ["Training.Diverged", "local_class()"])
def test_an_error_class_inside_another_is_caught_where_it_was_pickled_by_value(
    expression: str,
) -> None:
    script = types.ModuleType("__main__")
    exec(SCRIPT, script.__dict__)
    kind = eval(expression, script.__dict__)
    there = subprocess.run(
        [sys.executable, "-c", INSTANCE], input=cloudpickle.dumps(kind), capture_output=True
    )
    told = json.loads(there.stdout)["error_kinds"]
    ended = EndedTrial(create_trial(state=TrialState.FAIL), tuple(told))
    assert is_caught(ended, error_names(kind))
    assert not is_caught(ended, error_names(KeyError))
