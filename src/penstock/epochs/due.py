"""When a shard is due without new records: what its timers, punctuators and windows wait for.

A shard stores this per stage, so that an epoch runs only the shards that have something to do. Before the first epoch of a start,
nothing is known about a shard.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.epochs.program import Epoch
from penstock.lanes.clocks import Clocks
from penstock.lanes.punctuation import NEVER
from penstock.state import LaneState, Register, ShardState

_UNKNOWN = -1
_DUE = "due/"


def is_due(shard: ShardState, stage: int, epoch: Epoch) -> bool:
    """Whether something in a shard is due, or may be."""
    wall_clock, watermark = _registers(shard, stage)
    if wall_clock.value == _UNKNOWN or wall_clock.value <= epoch.wall_clock:
        return True
    return epoch.watermark is not None and watermark.value <= epoch.watermark


def note_due(shard: ShardState, stage: int, clocks: Clocks) -> None:
    """Store what a shard waits for from now on."""
    wall_clock, watermark = _registers(shard, stage)
    wall_clock.value = NEVER if clocks.due is None else max(clocks.due, 0)
    watermark.value = NEVER if clocks.watermark.due is None else max(clocks.watermark.due, 0)


def was_due(state: LaneState, shards: Iterable[int], stage: int) -> tuple[int | None, int | None]:
    """Return the earliest wall-clock time and watermark that any of the shards waits for; None for none."""
    found = [_registers(state.shard(shard), stage) for shard in shards]
    first = min(wall_clock.value for wall_clock, _ in found), min(watermark.value for _, watermark in found)
    return None if first[0] == NEVER else first[0], None if first[1] == NEVER else first[1]


def forget_due(shard: ShardState) -> None:
    """Forget what a shard waits for: the topology may have changed since."""
    for name in [name for name in shard.registers.snapshot() if name.startswith(_DUE)]:
        shard.registers.register(name, _UNKNOWN).value = _UNKNOWN


def _registers(shard: ShardState, stage: int) -> tuple[Register, Register]:
    register = shard.registers.register
    return register(f"{_DUE}{stage}/wall clock", _UNKNOWN), register(f"{_DUE}{stage}/watermark", _UNKNOWN)
