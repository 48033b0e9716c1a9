"""Slots that are lent to programs of any kind, because starting some takes a second; and slots that pretend to be on hosts."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa

from penstock.engines.exchanging import Exchanging, Listen, SlotSide
from penstock.engines.port import SlotLostError
from penstock.engines.requests import RestoreLane, RowsRequest
from penstock.engines.slots import Slot, Slots
from penstock.epochs.program import Program
from penstock.epochs.restore import Restored
from penstock.state.remote.client import Address
from tests.unit.epochs.forked import ForkedServers

cloudpickle.register_pickle_by_value(sys.modules[__name__])

HOSTS = ("127.0.0.1", "localhost")
"""Two names of this machine, so that lane servers can be reached by both."""

Dies = Callable[[Any], str]
"""Whether a slot dies of a request: `before` its work, or `after` it, before the answer; an empty text if it does not."""


@dataclass(frozen=True)
class Lent:
    """A request of another program than the slots'. Its process may die of it."""

    program: Program
    request: RowsRequest
    dies: str

    @property
    def reads_topics(self) -> bool:
        return self.request.reads_topics

    def run(self, program: Program, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rows = list(self.request.run(self.program, batches))
        if self.dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(rows)


@dataclass(frozen=True)
class LentRestore(RestoreLane):
    """The restore of a lane of another program than the slots'."""

    of: Program | None = None

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        assert self.of is not None
        return super().restore(self.of, report)


@dataclass(frozen=True)
class LentExchanging(Exchanging):
    """A step of another program than the slots', with rows of other slots. Its process may die of it."""

    of: Program | None = None
    dies: str = ""

    def run(self, program: Program, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert self.of is not None
        if self.dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(self.of, batches)

    def sent(self, slot: SlotSide, program: Program, rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        assert self.of is not None
        found = super().sent(slot, self.of, rows)
        if self.dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return found


class LentSlots:
    """Slots of others that run the requests of a program; they are neither started nor closed with it."""

    def __init__(self, slots: Slots, program: Program) -> None:
        self.size = slots.size
        self.dies: Dies = lambda request: ""
        self._slots = slots
        self._program = program

    @property
    def hosts(self) -> Mapping[str, int]:
        return self._slots.hosts

    def start(self) -> None:
        """They run already."""

    def close(self) -> None:
        """They go on running."""

    def turn(self, epoch: int) -> bool:
        """See `Slots.turn`."""
        return self._slots.turn(epoch)

    def slot(self, position: int) -> Any:
        slot = self._slots.slot(position)
        return _LentSlot(slot, slot.host, self._asked)

    @property
    def slots(self) -> list[Slot]:
        """Those that are lent."""
        return [self._slots.slot(position) for position in range(self.size)]

    def die_of(self, matches: Callable[[Any], bool], when: str) -> None:
        """Let the slot that gets the next request of a kind die of it."""

        def dies(request: Any) -> str:
            if not matches(request):
                return ""
            self.dies = lambda request: ""
            return when

        self.dies = dies

    def _asked(self, slot: Slot, request: Any, *rest: Any, **options: Any) -> Any:
        return slot.ask(self._lent(request, self._program), *rest, **options)

    def _lent(self, request: Any, program: Program) -> Any:
        if isinstance(request, RestoreLane):
            return LentRestore(**_fields(request), of=program)
        if isinstance(request, Listen):
            return request
        if isinstance(request, Exchanging):
            return LentExchanging(**_fields(request), of=program, dies=self.dies(request))
        return Lent(program, request, self.dies(request))


def _fields(request: Any) -> dict[str, Any]:
    return {field.name: getattr(request, field.name) for field in fields(request)}


class HostedSlots(LentSlots):
    """Lent slots that are on two hosts, in turn; each has its own directory, and a lane server."""

    def __init__(self, slots: Slots, program: Program) -> None:
        super().__init__(slots, program)
        self.there = list(HOSTS)
        """The hosts that there are."""
        self.watched: Mapping[str, Address] = {}
        self._servers = ForkedServers(HOSTS[0])
        self._settled: dict[int, Slot] = {}

    def close(self) -> None:
        self._servers.close()

    def on(self, host: str) -> Program:
        """The program on a host."""
        return replace(self._program, directory=f"{self._program.directory}/{host}")

    @property
    def hosts(self) -> Mapping[str, int]:
        return Counter(map(self._host, self._positions))

    def settled(self) -> Mapping[int, str]:
        self._settled = {position: self._slots.slot(position) for position in self._positions}
        return {position: self._host(position) for position in self._positions}

    def have_changed(self) -> bool:
        return list(self._settled) != self._positions or any(slot.is_lost for slot in self._settled.values())

    def watch(self, servers: Mapping[str, Address]) -> None:
        self.watched = servers

    def slot(self, position: int) -> Any:
        host = self._host(position)
        if host not in self.there or self._settled[position].is_lost:
            raise SlotLostError(f"The slot at position {position} is lost.")
        return _LentSlot(self._settled[position], host, lambda *asked, **options: self._asked_on(host, *asked, **options))

    @property
    def _positions(self) -> list[int]:
        return [position for position in range(self.size) if self._host(position) in self.there]

    @staticmethod
    def _host(position: int) -> str:
        return HOSTS[position % len(HOSTS)]

    def _asked_on(self, host: str, slot: Slot, request: Any, *rest: Any, **options: Any) -> Any:
        program = self.on(host)
        if not isinstance(request, RestoreLane):
            return slot.ask(self._lent(request, program), *rest, **options)
        assert request.host == host
        answer = slot.ask(self._lent(replace(request, host=""), program), *rest, **options)
        restored = Restored(*msgspec.msgpack.decode(answer))
        return msgspec.msgpack.encode(tuple(restored._replace(port=self._servers.port_of(program))))


class _LentSlot:
    def __init__(self, slot: Slot, host: str, asked: Callable[..., Any]) -> None:
        self.host = host
        self._slot = slot
        self._asked = asked

    @property
    def is_idle(self) -> bool:
        return self._slot.is_idle

    def ask(self, *arguments: Any, **options: Any) -> Any:
        return self._asked(self._slot, *arguments, **options)
