"""Words of options and arguments that are not known: a similar one is suggested."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import CastorError

USAGE, REFUSED = 2, 1


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("invite ada --role admn", 'did you mean "admin"?'),
        ("people add ada --role submiter", 'did you mean "submitter"?'),
        ("token create ci --role oprator", 'did you mean "operator"?'),
        ("people set ada --role boss", "choose one of viewer, submitter, operator, admin"),
        ("init awz", 'did you mean "aws"?'),
        ("serve --log-format jsn", 'did you mean "json"?'),
    ],
)
def test_a_word_of_an_enumeration_is_suggested(command: str, hint: str) -> None:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == USAGE and hint in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("schema jbo", 'there is no schema of "jbo": did you mean "job"?'),
        ("schema galaxy", "choose one of job, study, offers, pool, pools"),
        ("serve --policy margnal", '"margnal" is no policy: did you mean "marginal"?'),
        ("serve --policy galaxy", '"galaxy" is no policy: there are allox, '),
    ],
)
def test_the_name_of_a_schema_or_a_policy_is_suggested(command: str, hint: str) -> None:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == REFUSED and isinstance(result.exception, CastorError)
    assert hint in str(result.exception)


def test_words_are_shown_in_the_help_and_completed() -> None:
    text = " ".join(CliRunner().invoke(app, ["people", "add", "-h"]).output.split())
    assert "<viewer|submitter|operator|admin>" in text and "[default: submitter]" in text
    typed = {"COMP_WORDS": "castor people add ada --role op", "COMP_CWORD": "5"}
    shell = {"_CASTOR_COMPLETE": "complete_bash", **typed}
    assert CliRunner().invoke(app, [], env=shell, prog_name="castor").output.split() == [
        "operator"
    ]
