"""The engines that tests compare, each with an application of its own; their slots are those of all tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock import Topology
from penstock.engines.many_hosts import ManyHosts
from penstock.engines.one_host import OneHost
from penstock.engines.slots import Slots
from penstock.state.remote.client import clients_of
from tests.unit.engines.driving import Driven, InOneProcess
from tests.unit.engines.lending import HostedSlots, LentSlots
from tests.unit.engines.programs import TOPOLOGIES, installed
from tests.unit.engines.written import ending_in
from tests.unit.epochs.spread import KEY

PATIENCE_S = 60.0


class Engines:
    """The engines that are compared. They end with a test, their slots are those of all tests."""

    def __init__(self, directory: Path, slots: Mapping[str, Slots]) -> None:
        self._directory = directory
        self._slots = slots
        self._made: list[Driven] = []

    def driven(self, engine: str, name: str | Callable[[], Topology], lanes: int, written: Path | None = None) -> Driven:
        """An application on an engine. On hosts, executors write into a directory if one is given."""
        topology = TOPOLOGIES[name]() if isinstance(name, str) else name()
        program = installed(topology, self._directory / f"{engine}-{len(self._made)}", lanes)
        if engine == "one process":
            made = Driven(program, InOneProcess(program))
        elif engine == "hosts":
            owner = program.incarnation if written is None else str(written)  # a slot keeps the writer of an incarnation
            program = replace(program, is_spread=True, server_key=KEY, incarnation=owner)
            hosted = HostedSlots(self._slots["forked"], program)
            ending = None if written is None else ending_in(written, program)
            made = Driven(program, ManyHosts(program, hosted, PATIENCE_S, lambda: None, lambda: ending), hosted, hosted.on)
        else:
            slots = LentSlots(self._slots[engine], program)
            made = Driven(program, OneHost(program, slots, PATIENCE_S, engine, "processes"), slots)
        self._made.append(made)
        made.place()
        return made

    def close(self) -> None:
        for made in self._made:
            made.engine.close()
        clients_of(KEY).close()
