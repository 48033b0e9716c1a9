"""`ForkedSlots`: slots in processes that are all forked by one process, which has imported everything they need."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping

from penstock.engines.forked.forking import ForkingProcess, started
from penstock.engines.messages import Kind, send
from penstock.engines.port import SlotLostError
from penstock.engines.slots import Slot
from penstock.engines.watching import Watch
from penstock.epochs.packing import packed
from penstock.epochs.program import Program

HERE = "this host"


class ForkedSlots:
    """`size` slots, each forked when it is first used. `prepare` is called once in each, `heard` with every line they write."""

    def __init__(self, program: Program, prepare: Callable[[], None], size: int, heard: Callable[[str], None]) -> None:
        self._size = size
        self._program = packed(program, (program, prepare))
        self._heard = heard
        self._forking: ForkingProcess | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._watch = Watch()
        self._slots: list[Slot | None] = [None] * size

    @property
    def size(self) -> int:
        """See `Slots.size`."""
        return self._size

    @property
    def hosts(self) -> Mapping[str, int]:
        """See `Slots.hosts`: they are forked on demand."""
        return {HERE: self._size}

    def start(self) -> None:
        """Start the forking process, without waiting until it is ready."""
        self._forking = started(self._heard)
        send(self._forking.control, Kind.PROGRAM, self._program)

    def slot(self, position: int) -> Slot:
        """See `Slots.slot`: one that was lost is forked again."""
        position %= self._size
        with self._lock:
            found = self._slots[position]
            if found is None or found.is_lost:
                found = self._slots[position] = self._forked()
            return found

    def turn(self, epoch: int) -> bool:
        """See `Slots.turn`: forked processes stay."""
        return False

    def close(self) -> None:
        """See `Slots.close`: the forking process ends with all that it has forked."""
        self._is_closed = True
        for slot in self._slots:
            if slot is not None:
                slot.close()
        if self._forking is not None:
            self._forking.close()
        with self._lock:  # a thread that waited for a slot may just have replaced it
            if self._forking is not None:
                self._forking.close()

    def _forked(self) -> Slot:
        assert self._forking is not None
        control = self._forking.control
        try:
            send(control, Kind.FORK, b"")
            process, descriptors, _, _ = socket.recv_fds(control, 8, 1)
            if not descriptors:
                raise EOFError("it has closed its socket")
        except (EOFError, OSError) as error:
            self._forking.close()
            if not self._is_closed:
                self.start()
            raise SlotLostError(f"The process that starts slots has ended unexpectedly ({error}).") from error
        return Slot(socket.socket(fileno=descriptors[0]), HERE, int.from_bytes(process, "big"), self._watch)
