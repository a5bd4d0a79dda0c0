"""Which configuration each job of a pool gets, and on which machines: one integer program.

A job may stay where it is, be given a power of two of the devices of one machine, or several
whole machines of one kind. That so few are enough, and that what is chosen can be placed without
two distributed jobs meeting on a machine, is of Sia (SOSP'23), section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from autoscaler.domain.allocation import Placement
from autoscaler.domain.errors import SolverError
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.packing import Packing, distributed
from autoscaler.policies.pool import Pool

# Nodes of branch and bound, which end the search at the same plan on any machine, and the time
# after which it ends anyway.
_NODES = 1000
_MOST_SECONDS = 5.0
_GAP = 1e-6
# What stands is left only for what costs less by this part of it.
_WORTH_CHANGING = 1e-5


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """`machines` machines of one kind with `devices` of each; a distributed job has several."""

    machines: int
    devices: int
    kind: str

    @property
    def total(self) -> int:
        """Devices over all machines."""
        return self.machines * self.devices


@dataclass(frozen=True, slots=True)
class Claim:
    """What one job could be given, and what that would cost.

    Attributes:
        job: its id.
        held: where it is now, if it is anywhere.
        costs: of each configuration in which it would be placed anew.
        staying_cost: of what it holds; of no meaning where it holds nothing.
        idle_cost: of nothing.
    """

    job: str
    held: Placement | None
    costs: Mapping[Configuration, float]
    staying_cost: float
    idle_cost: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where each job is to be (job id -> placement); `trouble` is what the solver failed at."""

    placements: Mapping[str, Placement | None]
    trouble: str | None = None


# A job stays where it is, is placed anew, or gets nothing.
_Choice = Placement | Configuration | None


def configurations(pool: Pool) -> tuple[Configuration, ...]:
    """Powers of two of one machine's devices and whole machines, of each kind's usual size."""
    return tuple(
        one for kind, part in pool.by_kind().items() for one in _configurations(kind, part)
    )


def _configurations(kind: str, part: Pool) -> Iterator[Configuration]:
    usual = _usual_devices(part)
    parts = sorted({1 << power for power in range(usual.bit_length())} | ({usual} - {0}))
    whole = sum(devices >= usual > 0 for devices in part.capacity.values())
    yield from (Configuration(1, devices, kind) for devices in parts)
    yield from (Configuration(machines, usual, kind) for machines in range(2, whole + 1))


def configuration_of(placement: Placement, pool: Pool) -> Configuration:
    """That of a placement that was given anew."""
    kind = pool.kind_of(placement)
    assert kind is not None
    return Configuration(len(placement.shares), placement.shares[0][1], kind)


def held_in(job: JobSnapshot, pool: Pool) -> Placement | None:
    """What a job holds, as long as the machines are there, of one kind that it may use."""
    shares = job.placement.shares if job.placement else ()
    is_there = all(devices <= pool.capacity.get(offer, 0) for offer, devices in shares)
    is_usable = pool.kind_of(job.placement) in pool.for_job(job)
    return job.placement if is_there and is_usable else None


def assign(claims: Sequence[Claim], pool: Pool) -> Assignment:
    """The choices of least cost in all; what stands, unless others are clearly better.

    Of jobs with equal configurations those that come first in `claims` are placed first. Never
    fails: where the solver does, all stay, and the others get a device each while there are any.
    """
    standing = _standing(claims, pool)
    if not claims or pool.available == 0:
        return Assignment(_placed(claims, standing, pool))
    try:
        best = _best(claims, pool)
    except SolverError as error:
        return Assignment(_placed(claims, _one_each(claims, standing, pool), pool), str(error))
    cost, cost_now = _cost(claims, best), _cost(claims, standing)
    is_better = cost < cost_now - _WORTH_CHANGING * abs(cost_now)
    return Assignment(_placed(claims, best if is_better else standing, pool))


def _usual_devices(pool: Pool) -> int:
    """What most machines have; 0 where none has any."""
    sizes = Counter(devices for devices in pool.capacity.values() if devices > 0)
    return max(sizes, key=lambda devices: (sizes[devices], devices), default=0)


def _cost(claims: Sequence[Claim], choices: Sequence[_Choice]) -> float:
    return sum(_cost_of(claim, choice) for claim, choice in zip(claims, choices, strict=True))


def _cost_of(claim: Claim, choice: _Choice) -> float:
    if choice is None:
        return claim.idle_cost
    return claim.staying_cost if isinstance(choice, Placement) else claim.costs[choice]


def _standing(claims: Sequence[Claim], pool: Pool) -> list[_Choice]:
    """What each job holds, as far as that is there and distributed jobs are apart."""
    packing = Packing(pool.capacity)
    found: list[_Choice] = []
    for claim in claims:
        held = claim.held
        stays = held is not None and packing.has_room(held) and packing.keeps_apart(held)
        packing.take(held if stays else None)
        found.append(held if stays else None)
    return found


def _one_each(claims: Sequence[Claim], standing: Sequence[_Choice], pool: Pool) -> list[_Choice]:
    left = {kind: part.available for kind, part in pool.by_kind().items()}
    for choice in standing:
        kind = pool.kind_of(choice) if isinstance(choice, Placement) else None
        if isinstance(choice, Placement) and kind is not None:
            left[kind] -= choice.devices
    found: list[_Choice] = []
    for claim, choice in zip(claims, standing, strict=True):
        ones = [one for one in claim.costs if one.total == 1 and left[one.kind] > 0]
        if choice is None and ones:
            choice = min(ones, key=lambda one: claim.costs[one])
            left[choice.kind] -= 1
        found.append(choice)
    return found


def _best(claims: Sequence[Claim], pool: Pool) -> list[_Choice]:
    """The choices of least cost.

    The devices of each machine bear those that stay there and what is put there anew: so many
    parts of each size, and at most one distributed job.

    Raises:
        SolverError: none were found.
    """
    program = _Program()
    rows = _rows(program, pool)
    meaning: dict[int, tuple[int, _Choice]] = {}
    for turn, claim in enumerate(claims):
        once = program.row(1, 1)
        meaning[program.column(claim.idle_cost, 1, {once: 1})] = turn, None
        for one, cost in claim.costs.items():
            row, number_of = rows.wanted(one)
            taken = {row: number_of}
            meaning[program.column(cost, 1, {once: 1} | taken)] = turn, one
        if claim.held is not None and rows.room.keys() >= dict(claim.held.shares).keys():
            taken = {rows.room[offer]: devices for offer, devices in claim.held.shares}
            taken |= {rows.apart[offer]: 1 for offer in distributed(claim.held)}
            column = program.column(claim.staying_cost, 1, {once: 1} | taken)
            meaning[column] = turn, claim.held
    solution = program.solution()
    chosen = dict(meaning[column] for column in meaning if solution[column] > 0.5)
    return [chosen[turn] for turn in range(len(claims))]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the program counts what is taken.

    Attributes:
        room: the devices of each machine.
        apart: the distributed jobs of each machine.
        parts: parts of machines that are wanted beyond those there are, of each size.
        spans: whole machines of each kind that distributed jobs want beyond those there are.
    """

    room: Mapping[str, int]
    apart: Mapping[str, int]
    parts: Mapping[Configuration, int]
    spans: Mapping[str, int]

    def wanted(self, one: Configuration) -> tuple[int, int]:
        """The row in which a configuration counts, and as how many there."""
        return (self.parts[one], 1) if one.machines == 1 else (self.spans[one.kind], one.machines)


def _rows(program: _Program, pool: Pool) -> _Rows:
    """The rows of a pool, with the parts that its machines could be cut into as columns."""
    rows = _Rows(
        room={offer: program.row(-np.inf, devices) for offer, devices in pool.capacity.items()},
        apart={offer: program.row(-np.inf, 1) for offer in pool.capacity},
        parts={one: program.row(-np.inf, 0) for one in configurations(pool) if one.machines == 1},
        spans={kind: program.row(-np.inf, 0) for kind in pool.by_kind()},
    )
    for kind, part in pool.by_kind().items():
        for offer, devices in part.capacity.items():
            _cut(program, rows, _Machine(kind, rows.room[offer], rows.apart[offer], devices), part)
    return rows


@dataclass(frozen=True, slots=True)
class _Machine:
    """One machine in the program: its kind, its rows, its devices."""

    kind: str
    room: int
    apart: int
    devices: int


def _cut(program: _Program, rows: _Rows, machine: _Machine, part: Pool) -> None:
    """Columns of the parts that a machine could be cut into, and of all of it."""
    for one, row in rows.parts.items():
        if one.kind == machine.kind:
            most = machine.devices // one.devices
            program.column(0.0, most, {row: -1, machine.room: one.devices})
    usual = _usual_devices(part)
    if machine.devices >= usual:
        spans = rows.spans[machine.kind]
        program.column(0.0, 1, {spans: -1, machine.room: usual, machine.apart: 1})


def _placed(
    claims: Sequence[Claim], choices: Sequence[_Choice], pool: Pool
) -> dict[str, Placement | None]:
    """Where each choice is, the largest first, each where least is left over.

    With machines that have the usual number of devices, or a power of two of them, what the
    program found room for has room here; on others a job may have to wait.
    """
    packing, parts = Packing(pool.capacity), pool.by_kind()
    found: dict[str, Placement | None] = {claim.job: None for claim in claims}
    anew: list[tuple[Configuration, str]] = []
    for claim, choice in zip(claims, choices, strict=True):
        if isinstance(choice, Placement):
            packing.take(choice)
            found[claim.job] = choice
        elif choice is not None:
            anew.append((choice, claim.job))
    for one, job in sorted(anew, key=lambda each: each[0], reverse=True):
        found[job] = packing.tightest(one.machines, one.devices, parts[one.kind].capacity)
        packing.take(found[job])
    return found


class _Program:
    """An integer program of least cost, put together by rows and columns."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._most: list[int] = []
        self._rows: list[tuple[float, float]] = []
        self._entries: list[tuple[int, int, int]] = []

    def row(self, least: float, most: float) -> int:
        """A sum that is to lie between these."""
        self._rows.append((least, most))
        return len(self._rows) - 1

    def column(self, cost: float, most: int, factors: Mapping[int, int]) -> int:
        """A whole number from 0 to `most`, with its factors by row."""
        column = len(self._costs)
        self._costs.append(cost)
        self._most.append(most)
        self._entries += [(row, column, factor) for row, factor in factors.items()]
        return column

    def solution(self) -> FloatArray:
        """The numbers of least cost.

        Raises:
            SolverError: none were found.
        """
        rows, columns, factors = np.array(self._entries).T
        matrix = csr_array((factors.astype(np.float64), (rows, columns)))
        least, most = np.array(self._rows).T
        found = milp(
            np.array(self._costs),
            integrality=np.ones(len(self._costs), dtype=np.int64),
            bounds=Bounds(0.0, np.array(self._most)),
            constraints=LinearConstraint(matrix, least, most),
            options={"time_limit": _MOST_SECONDS, "node_limit": _NODES, "mip_rel_gap": _GAP},
        )
        if found.x is None:
            raise SolverError(f"branch and bound found nothing: {found.message}")
        solution: FloatArray = found.x
        return solution
