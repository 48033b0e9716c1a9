"""Three ways to commit an epoch of many hosts, what limits each, and the load at which it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from verification.scaling.constants import Constants
from verification.scaling.sizing import Host, Load, Sizing, size


class Limit(NamedTuple):
    """What a load needs of something, and how much there is."""

    name: str
    need: float
    capacity: float
    unit: str

    @property
    def use(self) -> float:
        """The share that is used; more than 1 does not fit."""
        return self.need / self.capacity


Limits = Callable[[Sizing, Constants, Host], tuple[Limit, ...]]


@dataclass(frozen=True, slots=True)
class Design:
    """A way to commit."""

    name: str
    status: str
    executors_write: bool
    limits: Limits


class Breaking(NamedTuple):
    """Up to how many records/s a design carries a load, and what breaks then."""

    records: float
    limit: Limit
    sizing: Sizing


def _requests(sizing: Sizing, constants: Constants) -> Limit:
    """Each lane has a slot of its own; the threads of the driver, one for each slot, share an interpreter."""
    requests = sizing.lanes * sizing.steps
    return Limit("requests of the driver", requests * constants.request_ms, 1e3 * sizing.load.epoch_s, "ms")


def _commit_ms(partitions: float, constants: Constants) -> float:
    return partitions * (constants.partition_add_ms + constants.marker_ms)


def _budget_ms(sizing: Sizing, constants: Constants) -> float:
    return 1e3 * constants.commit_share * sizing.load.epoch_s


def one_producer(sizing: Sizing, constants: Constants, host: Host) -> tuple[Limit, ...]:
    """Rows of all lanes pass through the driver, whose producer writes them."""
    return (
        Limit("rows of the driver's producer", sizing.rows, constants.driver_rows, "rows/s"),
        Limit("the driver's memory", sizing.driver_memory, host.memory, "bytes"),
        Limit("the driver's network", sizing.driver_network, host.network, "bytes/s"),
        Limit("the commit", _commit_ms(sizing.written_partitions, constants), _budget_ms(sizing, constants), "ms"),
        _requests(sizing, constants),
    )


def writers(sizing: Sizing, constants: Constants, host: Host) -> tuple[Limit, ...]:
    """Lanes write into the driver's transaction, under its identity."""
    return (
        Limit("writers of a transaction", sizing.lanes, constants.writers, "writers"),
        Limit("the commit", _commit_ms(sizing.written_partitions, constants), _budget_ms(sizing, constants), "ms"),
        _requests(sizing, constants),
    )


def groups(sizing: Sizing, constants: Constants, host: Host) -> tuple[Limit, ...]:
    """Groups of lanes have transactions of their own, and a record of the driver's decides."""
    number = number_of_groups(sizing, constants)
    commit = _commit_ms(sizing.written_partitions / number, constants) + number * constants.group_ms
    return (
        Limit("the commit", commit, _budget_ms(sizing, constants), "ms"),
        _requests(sizing, constants),
    )


def number_of_groups(sizing: Sizing, constants: Constants) -> int:
    """Return as many groups as keep each within what one transaction carries, with half of the time for it."""
    by_time = 2 * _commit_ms(sizing.written_partitions, constants) / _budget_ms(sizing, constants)
    return max(1, math.ceil(max(sizing.lanes / constants.writers, by_time)))


DESIGNS = (
    Design("one producer on the driver", "the default on a cluster", False, one_producer),
    Design("writers on executors, one transaction", 'writers = "executors"', True, writers),
    Design("groups with a decision record", "designed and modelled, not built", True, groups),
)


def sized(design: Design, load: Load, constants: Constants, host: Host) -> Sizing:
    """Return what a load needs with a design."""
    return size(replace(load, executors_write=design.executors_write), constants, host)


def tightest(design: Design, sizing: Sizing, constants: Constants, host: Host) -> Limit:
    """Return the limit that breaks first."""
    return max(design.limits(sizing, constants, host), key=lambda limit: limit.use)


def breaking(design: Design, load: Load, constants: Constants, host: Host) -> Breaking:
    """Return the highest rate that a design carries, all else being equal, and what breaks beyond it."""

    def at(records: float) -> tuple[Limit, Sizing]:
        sizing = sized(design, replace(load, records=records), constants, host)
        return tightest(design, sizing, constants, host), sizing

    low, high = 0.0, 1.0
    while at(high)[0].use <= 1:
        low, high = high, 2 * high
    while high - low > max(1.0, low / 1_000):
        middle = (low + high) / 2
        if at(middle)[0].use <= 1:
            low = middle
        else:
            high = middle
    return Breaking(low, at(high)[0], at(low)[1])
