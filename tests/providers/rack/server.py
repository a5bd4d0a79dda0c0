"""Rack: a cloud whose HTTP API only starts and stops machines."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import asdict, dataclass
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from autoscaler.clock import Clock
from tests.fakes.serving import Served

TOKEN = "rack-token"
TYPES = [
    {"name": "small", "gpu": "l4", "gpus": 1, "usd_per_hour": "0.40", "machines": 4},
    {"name": "large", "gpu": "l4", "gpus": 4, "usd_per_hour": "1.50", "machines": 1},
]
NOTICE_SECONDS = 30.0


@dataclass
class Machine:
    id: str
    name: str
    type: str
    labels: dict[str, str]
    user_data: str
    created: float
    stopped: float | None = None
    ends: dict[str, float] | None = None


class Refused(HTTPException):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(response=Response(json.dumps({"code": code}), status))


class Rack:
    """Rack whose machines boot and stop within a second of `clock`; ended ones are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._machines: dict[str, Machine] = {}
        self.started: list[Machine] = []
        self.stopped: list[str] = []
        self.replies: list[Response] = []  # given instead of an answer, after the call is done
        self._served = Served(self._answer)
        self.url = self._served.url

    def close(self) -> None:
        self._served.close()

    def alive(self) -> list[str]:
        now_seconds = self._clock.now()
        for machine in list(self._machines.values()):
            if machine.ends is not None and machine.ends["at"] <= now_seconds:
                machine.stopped = machine.stopped or machine.ends["at"]
            if machine.stopped is not None and machine.stopped + 1.0 <= now_seconds:
                del self._machines[machine.id]
        return list(self._machines)

    def reclaim(self, machine_id: str) -> None:
        now_seconds = self._clock.now()
        ends = {"announced": now_seconds, "at": now_seconds + NOTICE_SECONDS}
        self._machines[machine_id].ends = ends

    @Request.application
    def _answer(self, request: Request) -> Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "forbidden")
        with self._lock:
            self.alive()
            answer = self._do(request)
            is_change = request.method != "GET"
            return self.replies.pop() if self.replies and is_change else answer

    def _do(self, request: Request) -> Response:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["types"]:
                return _json([{**type, "machines": None} for type in TYPES])
            case "GET", ["machines"]:
                wanted = dict(request.args).items()
                all_machines = map(self._shown, self._machines.values())
                return _json(
                    [machine for machine in all_machines if wanted <= machine["labels"].items()]
                )
            case "POST", ["machines"]:
                return _json(self._shown(self._start(request.get_json())))
            case "DELETE", ["machines", machine_id] if machine_id in self._machines:
                machine = self._machines[machine_id]
                machine.stopped = machine.stopped or self._clock.now()
                self.stopped.append(machine_id)
                return Response(status=204)
        raise Refused(404, "not_found")

    def _start(self, wanted: dict[str, Any]) -> Machine:
        if any(machine.name == wanted["name"] for machine in self._machines.values()):
            raise Refused(409, "name_taken")
        number = {type["name"]: type["machines"] for type in TYPES}[wanted["type"]]
        taken = sum(machine.type == wanted["type"] for machine in self._machines.values())
        if taken >= number:
            raise Refused(409, "no_capacity")
        machine = Machine(f"m-{next(self._ids)}", **wanted, created=self._clock.now())
        self._machines[machine.id] = machine
        self.started.append(machine)
        return machine

    def _shown(self, machine: Machine) -> dict[str, Any]:
        is_up = machine.created + 1.0 <= self._clock.now()
        status = "stopping" if machine.stopped is not None else "running" if is_up else "starting"
        return {**asdict(machine), "status": status, "user_data": None}


def _json(answer: object) -> Response:
    return Response(json.dumps(answer), mimetype="application/json")
