"""Configuration and machines of each job of a pool, by one integer program.

A job may stay where it is, get a power of two of the devices of one machine, or get several whole
machines of one kind. Sia (SOSP'23), section 3.3, shows that these suffice, and that they can be
placed without two distributed jobs on one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when first used, which takes half a second

from autoscaler.domain.allocation import Placement
from autoscaler.domain.errors import SolverError
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.packing import Packing, distributed
from autoscaler.policies.pools.pool import Pool

# The limit on branch-and-bound nodes gives the same plan on every machine; the limit on seconds
# is a fallback.
_NODES = 1000
_MOST_SECONDS = 5.0
_GAP = 1e-6
# Relative reduction in cost below which the present placements are kept.
_WORTH_CHANGING = 1e-5


@dataclass(frozen=True, slots=True, order=True)
class MachineConfiguration:
    """`machines` machines of one kind with `devices` used of each; one unless distributed."""

    machines: int
    devices: int
    kind: str

    @property
    def total(self) -> int:
        """Devices over all machines."""
        return self.machines * self.devices


@dataclass(frozen=True, slots=True)
class ConfigurationCosts:
    """Costs of the configurations that one job could get.

    Attributes:
        job: id of the job.
        held: present placement; None if the job has none.
        costs: cost of each configuration after a restart.
        staying_cost: cost of the present placement; ignored where there is none.
        idle_cost: cost of holding nothing.
    """

    job: str
    held: Placement | None
    costs: Mapping[MachineConfiguration, float]
    staying_cost: float
    idle_cost: float


@dataclass(frozen=True, slots=True)
class JobPlacements:
    """Placement of each job by id; `trouble` is the solver's error, None if it succeeded."""

    placements: Mapping[str, Placement | None]
    trouble: str | None = None


# A job keeps its placement, gets a new configuration, or gets nothing.
_ClaimChoice = Placement | MachineConfiguration | None


def configurations(pool: Pool) -> tuple[MachineConfiguration, ...]:
    """Return the powers of two of one machine's devices and the whole machines, of each kind.

    The size of a whole machine is the most common one of its kind.
    """
    return tuple(
        configuration
        for kind, part in pool.by_kind().items()
        for configuration in _configurations_of_kind(kind, part)
    )


def _configurations_of_kind(kind: str, part: Pool) -> Iterator[MachineConfiguration]:
    machine_devices = _most_common_devices(part)
    sizes = sorted(
        {1 << power for power in range(machine_devices.bit_length())} | ({machine_devices} - {0})
    )
    whole_machines = sum(devices >= machine_devices > 0 for devices in part.capacity.values())
    yield from (MachineConfiguration(1, devices, kind) for devices in sizes)
    yield from (
        MachineConfiguration(machines, machine_devices, kind)
        for machines in range(2, whole_machines + 1)
    )


def configuration_of(placement: Placement, pool: Pool) -> MachineConfiguration:
    """Return the configuration of a placement on machines of one kind."""
    kind = pool.kind_of(placement)
    assert kind is not None
    return MachineConfiguration(len(placement.shares), placement.shares[0][1], kind)


def held_in(job: JobSnapshot, pool: Pool) -> Placement | None:
    """Return a job's placement if its machines remain and it may use their kind; else None."""
    shares = job.placement.shares if job.placement else ()
    is_there = all(devices <= pool.capacity.get(offer, 0) for offer, devices in shares)
    is_usable = pool.kind_of(job.placement) in pool.for_job(job)
    return job.placement if is_there and is_usable else None


def assign(claims: Sequence[ConfigurationCosts], pool: Pool) -> JobPlacements:
    """Return the assignment of least total cost; the present one unless it is clearly cheaper.

    Claims with equal configurations are placed in the order of `claims`. A failure of the solver
    is reported in `trouble`: then all jobs stay, and each idle job gets a free device while there
    are any.
    """
    present = _present_choices(claims, pool)
    if not claims or pool.available == 0:
        return JobPlacements(_placements(claims, present, pool))
    try:
        solved = _best(claims, pool)
    except SolverError as error:
        return JobPlacements(
            _placements(claims, _with_single_devices(claims, present, pool), pool), str(error)
        )
    cost, cost_now = _cost(claims, solved), _cost(claims, present)
    is_better = cost < cost_now - _WORTH_CHANGING * abs(cost_now)
    return JobPlacements(_placements(claims, solved if is_better else present, pool))


def _most_common_devices(pool: Pool) -> int:
    """Return the most common number of devices of a machine; 0 if no machine has any."""
    sizes = Counter(devices for devices in pool.capacity.values() if devices > 0)
    return max(sizes, key=lambda devices: (sizes[devices], devices), default=0)


def _cost(claims: Sequence[ConfigurationCosts], choices: Sequence[_ClaimChoice]) -> float:
    """Return the total cost of the choices."""
    return sum(_cost_of(claim, choice) for claim, choice in zip(claims, choices, strict=True))


def _cost_of(claim: ConfigurationCosts, choice: _ClaimChoice) -> float:
    if choice is None:
        return claim.idle_cost
    return claim.staying_cost if isinstance(choice, Placement) else claim.costs[choice]


def _present_choices(claims: Sequence[ConfigurationCosts], pool: Pool) -> list[_ClaimChoice]:
    """Return each job's placement if it still fits and keeps distributed jobs apart; else None."""
    packing = Packing(pool.capacity)
    choices: list[_ClaimChoice] = []
    for claim in claims:
        held = claim.held
        stays = held is not None and packing.has_room(held) and packing.keeps_apart(held)
        packing.take(held if stays else None)
        choices.append(held if stays else None)
    return choices


def _with_single_devices(
    claims: Sequence[ConfigurationCosts], present: Sequence[_ClaimChoice], pool: Pool
) -> list[_ClaimChoice]:
    """Return the present choices, with one device for each idle job while there are free ones."""
    free = {kind: part.available for kind, part in pool.by_kind().items()}
    for choice in present:
        kind = pool.kind_of(choice) if isinstance(choice, Placement) else None
        if isinstance(choice, Placement) and kind is not None:
            free[kind] -= choice.devices
    choices: list[_ClaimChoice] = []
    for claim, choice in zip(claims, present, strict=True):
        single_devices = [
            configuration
            for configuration in claim.costs
            if configuration.total == 1 and free[configuration.kind] > 0
        ]
        if choice is None and single_devices:
            choice = min(single_devices, key=lambda configuration: claim.costs[configuration])
            free[choice.kind] -= 1
        choices.append(choice)
    return choices


def _best(claims: Sequence[ConfigurationCosts], pool: Pool) -> list[_ClaimChoice]:
    """Return the choice of each claim at the least total cost.

    The devices of each machine cover the jobs that stay there and the parts for new
    configurations. A machine has at most one distributed job.

    Raises:
        SolverError: the solver finds no solution.
    """
    program = _Program()
    rows = _program_rows(program, pool)
    choice_of_column: dict[int, tuple[int, _ClaimChoice]] = {}
    for index, claim in enumerate(claims):
        one_choice_row = program.row(1, 1)
        choice_of_column[program.column(claim.idle_cost, 1, {one_choice_row: 1})] = index, None
        for configuration, cost in claim.costs.items():
            row, units = rows.wanted(configuration)
            entries = {row: units}
            choice_of_column[program.column(cost, 1, {one_choice_row: 1} | entries)] = (
                index,
                configuration,
            )
        if claim.held is not None and rows.room.keys() >= dict(claim.held.shares).keys():
            entries = {rows.room[offer]: devices for offer, devices in claim.held.shares}
            entries |= {rows.apart[offer]: 1 for offer in distributed(claim.held)}
            column = program.column(claim.staying_cost, 1, {one_choice_row: 1} | entries)
            choice_of_column[column] = index, claim.held
    solution = program.solution()
    chosen = dict(
        choice_of_column[column] for column in choice_of_column if solution[column] > 0.5
    )
    return [chosen[index] for index in range(len(claims))]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Row indices of the constraints of the integer program.

    Attributes:
        room: devices used of each machine, by offer id.
        apart: distributed jobs of each machine, by offer id.
        parts: parts wanted less parts cut from machines, by configuration of one machine.
        spans: whole machines that distributed jobs want less those provided, by kind.
    """

    room: Mapping[str, int]
    apart: Mapping[str, int]
    parts: Mapping[MachineConfiguration, int]
    spans: Mapping[str, int]

    def wanted(self, configuration: MachineConfiguration) -> tuple[int, int]:
        """Return the row in which a configuration counts, and its number of units there."""
        return (
            (self.parts[configuration], 1)
            if configuration.machines == 1
            else (self.spans[configuration.kind], configuration.machines)
        )


def _program_rows(program: _Program, pool: Pool) -> _Rows:
    """Add the rows of a pool and the columns of the parts its machines can be cut into."""
    rows = _Rows(
        room={offer: program.row(-np.inf, devices) for offer, devices in pool.capacity.items()},
        apart={offer: program.row(-np.inf, 1) for offer in pool.capacity},
        parts={
            configuration: program.row(-np.inf, 0)
            for configuration in configurations(pool)
            if configuration.machines == 1
        },
        spans={kind: program.row(-np.inf, 0) for kind in pool.by_kind()},
    )
    for kind, part in pool.by_kind().items():
        for offer, devices in part.capacity.items():
            _add_machine_columns(
                program, rows, _Machine(kind, rows.room[offer], rows.apart[offer], devices), part
            )
    return rows


@dataclass(frozen=True, slots=True)
class _Machine:
    """One machine in the program: its kind, its rows and its devices."""

    kind: str
    room: int
    apart: int
    devices: int


def _add_machine_columns(program: _Program, rows: _Rows, machine: _Machine, part: Pool) -> None:
    """Add columns for the parts that a machine can be cut into, and for the whole machine."""
    for configuration, row in rows.parts.items():
        if configuration.kind == machine.kind:
            most_parts = machine.devices // configuration.devices
            program.column(0.0, most_parts, {row: -1, machine.room: configuration.devices})
    whole_machine_devices = _most_common_devices(part)
    if machine.devices >= whole_machine_devices:
        spans = rows.spans[machine.kind]
        program.column(0.0, 1, {spans: -1, machine.room: whole_machine_devices, machine.apart: 1})


def _placements(
    claims: Sequence[ConfigurationCosts], choices: Sequence[_ClaimChoice], pool: Pool
) -> dict[str, Placement | None]:
    """Return the placement of each choice, largest first, each on the machines with least room.

    Every choice of the program fits on machines with the usual number of devices or a power of two
    of them. On other machines a job may stay without a placement.
    """
    packing, parts = Packing(pool.capacity), pool.by_kind()
    placements: dict[str, Placement | None] = {claim.job: None for claim in claims}
    to_place: list[tuple[MachineConfiguration, str]] = []
    for claim, choice in zip(claims, choices, strict=True):
        if isinstance(choice, Placement):
            packing.take(choice)
            placements[claim.job] = choice
        elif choice is not None:
            to_place.append((choice, claim.job))
    for configuration, job in sorted(to_place, key=lambda entry: entry[0], reverse=True):
        placements[job] = packing.tightest(
            configuration.machines, configuration.devices, parts[configuration.kind].capacity
        )
        packing.take(placements[job])
    return placements


class _Program:
    """Integer program of least cost, built row by row and column by column."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._most: list[int] = []
        self._program_rows: list[tuple[float, float]] = []
        self._entries: list[tuple[int, int, int]] = []

    def row(self, least: float, most: float) -> int:
        """Add a constraint with bounds `least` and `most`; return its index."""
        self._program_rows.append((least, most))
        return len(self._program_rows) - 1

    def column(self, cost: float, most: int, factors: Mapping[int, int]) -> int:
        """Add an integer variable from 0 to `most`, coefficients by row; return its index."""
        column = len(self._costs)
        self._costs.append(cost)
        self._most.append(most)
        self._entries += [(row, column, factor) for row, factor in factors.items()]
        return column

    def solution(self) -> FloatArray:
        """Return the values of least total cost, one for each column.

        Raises:
            SolverError: the solver finds no solution.
        """
        rows, columns, factors = np.array(self._entries).T
        matrix = scipy.sparse.csr_array((factors.astype(np.float64), (rows, columns)))
        least, most = np.array(self._program_rows).T
        result = scipy.optimize.milp(
            np.array(self._costs),
            integrality=np.ones(len(self._costs), dtype=np.int64),
            bounds=scipy.optimize.Bounds(0.0, np.array(self._most)),
            constraints=scipy.optimize.LinearConstraint(matrix, least, most),
            options={"time_limit": _MOST_SECONDS, "node_limit": _NODES, "mip_rel_gap": _GAP},
        )
        if result.x is None:
            raise SolverError(f"branch and bound found no solution: {result.message}")
        solution: FloatArray = result.x
        return solution
