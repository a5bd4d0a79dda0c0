"""Commands in the process of the test."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from autoscaler.cli.app import app


def run(*words: str) -> Result:
    """Run a command; an error of Castor is raised."""
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def castor(*words: str) -> str:
    """Return the output of a command that must succeed."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout
