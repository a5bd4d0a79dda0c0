"""Error classes that a study file names."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import cloudpickle
import pytest

from autoscaler.domain.errors import SpecError
from hpo.objective.distributed import distributed, distributed_settings
from hpo.study_file.catch import CaughtErrors, resolve_caught_errors


def objective(trial: object) -> float:
    return 1.0


def test_a_class_goes_by_the_name_that_its_errors_report() -> None:
    names = ("builtins.Exception", "KeyError", "json.JSONDecodeError", "socket.timeout")
    assert resolve_caught_errors(names) == CaughtErrors(
        frozenset(
            {"builtins.Exception", "KeyError", "json.decoder.JSONDecodeError"}
            | {"builtins.TimeoutError"}
        )
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("json.JSONDecodeErorr", 'json has no "JSONDecodeErorr": did you mean "json.JSONDecode'),
        ("json.decoderr.JSONDecodeError", 'json has no "decoderr": did you mean "json.decoder"'),
        ("json.dumps", '"json.dumps" is no class of errors'),
        ("builtins.KeyboardInterrupt", "is no class of errors"),
    ],
)
def test_a_class_that_does_not_exist_is_refused(name: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as refusal:
        resolve_caught_errors((name,))
    assert refusal.value.field == "catch"


def test_a_class_of_a_module_that_is_not_here_is_looked_for_by_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch = resolve_caught_errors(("only_there.Overflow",))
    assert catch == CaughtErrors(frozenset({"only_there.Overflow"}), ("only_there.Overflow",))
    checked = pickle.loads(cloudpickle.dumps(catch.checking(objective)))
    with pytest.raises(SpecError, match='catch: no module "only_there" is installed on this'):
        checked(None)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "only_there.py").write_text("class Overflown(Exception):\n    pass\n")
    with pytest.raises(SpecError, match=r'did you mean "only_there\.Overflown"'):
        checked(None)
    sys.modules["only_there"].Overflow = sys.modules["only_there"].Overflown  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=r'write "only_there\.Overflown" in place of'):
        checked(None)
    assert resolve_caught_errors(("only_there.Overflown",)).checking(objective) is objective
    assert CaughtErrors(frozenset(), ("only_there.Overflown",)).checking(objective)(None) == 1.0


def test_the_check_keeps_what_is_said_of_a_distributed_objective() -> None:
    marked = distributed((1, 2))(objective)
    assert distributed_settings(
        resolve_caught_errors(("only_there.Overflow",)).checking(marked)
    ) == distributed_settings(marked)
