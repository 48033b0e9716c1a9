"""The stores of all lanes combined: the state of an atomic section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.epochs.assignment import Assignment
from penstock.epochs.program import Program
from penstock.epochs.shards import lane_of, shard_of
from penstock.state import LaneState, Register, ShardState, StoreSpec


class AllLanes:
    """The state of a stage that works on all lanes. Every key is in its shard; registers are the first shard's."""

    def __init__(self, assigned: Assignment, states: Sequence[LaneState]) -> None:
        self._program = assigned.program
        self._states = states
        self._stores: dict[str, RoutedStore] = {}
        self.registers: SectionRegisters = SectionRegisters(
            states[0].shard(0), assigned.program.plan.stages[assigned.stage].sources[0]
        )

    def store(self, spec: StoreSpec) -> Any:
        """Return the typed store of a specification, over all lanes."""
        found = self._stores.get(spec.name)
        if found is None:
            found = self._stores[spec.name] = RoutedStore(self._program, spec, self._states)
        return found


class RoutedStore:
    """A key-value store whose keys are each in the shard that owns them."""

    def __init__(self, program: Program, spec: StoreSpec, states: Sequence[LaneState]) -> None:
        shards, lanes = program.shards, program.lanes
        self._shards = shards
        self._serialize = spec.serdes[0].serialize
        self._by_shard = [states[lane_of(shard, shards, lanes)].shard(shard).store(spec) for shard in range(shards)]

    def get(self, key: Any) -> Any:
        """Return the current value of a key."""
        return self._owner(key).get(key)

    def put(self, key: Any, value: Any) -> None:
        """Set a key's value in its shard; None deletes it."""
        self._owner(key).put(key, value)

    def _owner(self, key: Any) -> Any:
        return self._by_shard[0 if key is None else shard_of(self._serialize(key), self._shards)]


class SectionRegisters:
    """The first shard's registers, under the section's own names: its stream time is not the shard's."""

    def __init__(self, shard: ShardState, section: str) -> None:
        self._registers = shard.registers
        self._section = section

    def register(self, name: str, initial: int) -> Register:
        """Return the register of that name, with `initial` as its first value."""
        return self._registers.register(f"{self._section}/{name}", initial)
