"""Record of a deployment's machines, in a file.

The rack forgets machines that have ended. Castor needs them: for the end of their bills, and so
that a repeated launch starts nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from autoscaler.domain.instance import CloudInstance, CloudState

_KEPT_SECONDS = 86_400.0


class Records:
    """Instances by token, as last seen. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = json.loads(path.read_text()) if path.exists() else []
        self._instances = {row["token"]: _read(row) for row in rows}

    def of_token(self, token: str) -> CloudInstance | None:
        """Return the instance that a token launched; None if there is none."""
        return self._instances.get(token)

    def alive(self) -> int:
        """Return the number of instances that have not ended."""
        return sum(
            instance.state is not CloudState.TERMINATED for instance in self._instances.values()
        )

    def add(self, instance: CloudInstance) -> None:
        """Add an instance that was launched."""
        self._replace({**self._instances, instance.token: instance})

    def take_in(self, listed: Iterable[CloudInstance], now_seconds: float) -> list[CloudInstance]:
        """Update the record by a whole list of machines, and return all instances.

        Instances that are not listed have ended. They stay in the record for a day.
        """
        instances = {instance.token: instance for instance in listed}
        for token, before in self._instances.items():
            if token not in instances:
                instances[token] = _ended(before, now_seconds)
        self._replace(
            {
                token: instance
                for token, instance in instances.items()
                if now_seconds - (instance.ended_seconds or now_seconds) <= _KEPT_SECONDS
            }
        )
        return list(self._instances.values())

    def _replace(self, instances: dict[str, CloudInstance]) -> None:
        if instances == self._instances:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps([asdict(instance) for instance in instances.values()]))
        partial.rename(self._path)
        self._instances = instances


def _ended(instance: CloudInstance, now_seconds: float) -> CloudInstance:
    if instance.state is CloudState.TERMINATED:
        return instance
    return replace(instance, state=CloudState.TERMINATED, ended_seconds=now_seconds)


def _read(row: dict[str, object]) -> CloudInstance:
    return CloudInstance(**{**row, "state": CloudState(row["state"])})  # type: ignore[arg-type]
