"""Rows that slots exchange without the driver: each slot has an inbox, to which the others connect.

A slot sends the rows of a step before it answers the driver, and the driver requests the next step when all have answered: so an
inbox has all rows of a step when they are taken, or it is that of another process, and the epoch runs again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.engines.connections import Address, accepted, connected, listening
from penstock.engines.messages import Kind, receive, send, send_rows, unpacked
from penstock.errors import StateError
from penstock.state.remote.accepting import ANY_PORT, Ports, close_listener, connections_to
from penstock.state.remote.hand_shakes import HandShakes

Batches = list[pa.RecordBatch]

_HELLO_S = 10.0
_ANSWER_S = 20.0
"""How long an inbox may take to receive anything: only a suspended one does, whose host the driver has given up by then."""


class RowsLostError(Exception):
    """Rows were lost with a slot; the epoch has to run again. It crosses to the driver as an error that may not come again."""


class Parcel(msgspec.Struct, array_like=True, frozen=True):
    """Rows on their way: those that task number `sender` has for a lane before step `at` of the walk with this `number`.

    `most_bytes` is the limit for all rows of a lane; 0 for none.
    """

    number: int
    at: int
    lane: int
    sender: int
    most_bytes: int


@dataclass(frozen=True)
class Way:
    """Where rows go between the steps of a walk: its number, higher than that of any before, and the slot of each lane."""

    number: int
    addresses: tuple[Address, ...]


class Inbox:
    """Receives rows from other slots that know the `key`, until they are taken; `where` as in `listening`."""

    def __init__(self, where: Path | str, key: bytes, ports: Ports = ANY_PORT) -> None:
        self._key = key
        self.address: Address
        self._listener, self.address = listening(where, ports)
        self._number = -1
        self._parcels: dict[tuple[int, int, int], Batches] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self._changing = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._hand_shakes = HandShakes()
        threading.Thread(target=self._accept, name="penstock-inbox", daemon=True).start()

    def put(self, parcel: Parcel, batches: Batches) -> bool:
        """Keep rows; return whether there is room for them. Rows of an earlier walk than the newest one are refused."""
        size = sum(batch.nbytes for batch in batches)
        with self._changing:
            if parcel.number < self._number:
                raise RowsLostError(f"The rows are of walk {parcel.number}, and walk {self._number} has begun.")
            if parcel.number > self._number:
                self._number = parcel.number
                self._parcels.clear()
                self._sizes.clear()
            place = parcel.at, parcel.lane
            total = self._sizes.get(place, 0) + size
            if parcel.most_bytes and total > parcel.most_bytes:
                return False
            self._sizes[place] = total
            self._parcels[parcel.at, parcel.lane, parcel.sender] = batches
            return True

    def take(self, number: int, at: int, lane: int, senders: int) -> Batches:
        """Return the rows of a lane, in the order of their senders; they are kept no longer."""
        with self._changing:
            found: list[Batches | None] = [None]
            if number == self._number:
                self._sizes.pop((at, lane), None)
                found = [self._parcels.pop((at, lane, sender), None) for sender in range(senders)]
        if any(batches is None for batches in found):
            raise RowsLostError(f"Rows for lane {lane} were lost: a slot has ended since they were sent.")
        return [batch for batches in found for batch in batches or ()]

    def close(self) -> None:
        """Receive no more."""
        close_listener(self._listener)
        if isinstance(self.address, str):
            Path(self.address).unlink(missing_ok=True)
        with self._changing:
            for connection in self._connections:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _accept(self) -> None:
        for connection in connections_to(self._listener):
            proved = self._hand_shakes.begin(connection)
            threading.Thread(target=self._receive, args=(connection, proved), name="penstock-inbox-rows", daemon=True).start()

    def _receive(self, connection: socket.socket, proved: Callable[[], None]) -> None:
        """Receive from one slot, until it ends."""
        try:
            try:
                connection = accepted(connection, self._key, _HELLO_S)
            finally:
                proved()
            connection.settimeout(None)
            with self._changing:
                self._connections.add(connection)
            while True:
                _, header = receive(connection)
                _, content = receive(connection)
                is_kept = self.put(_decode(header), unpacked(content))
                send(connection, Kind.VALUE, _encode(is_kept))
        except (OSError, EOFError, StateError, RowsLostError, msgspec.MsgspecError):  # the sender notices, and tells the driver
            pass
        finally:
            with self._changing:
                self._connections.discard(connection)
            connection.close()


class Exchange:
    """A slot's inbox, and its connections to those of others."""

    def __init__(self, where: Path | str, key: bytes, ports: Ports = ANY_PORT) -> None:
        self.inbox: Inbox = Inbox(where, key, ports)
        self._key = key
        self._open: dict[Address, socket.socket] = {}

    def hand_over(self, way: Way, at: int, sender: int, parts: Mapping[int, Batches], most_bytes: int) -> bool:
        """Send each lane its part, an empty one too; return whether all have room. Raises if a slot does not answer."""
        fits = True
        for lane, batches in parts.items():
            parcel, to = Parcel(way.number, at, lane, sender, most_bytes), way.addresses[lane]
            fits = (self.inbox.put(parcel, batches) if to == self.inbox.address else self._send(to, parcel, batches)) and fits
        return fits

    def close(self) -> None:
        """End all connections."""
        self.inbox.close()
        for connection in self._open.values():
            connection.close()

    def _send(self, to: Address, parcel: Parcel, batches: Sequence[pa.RecordBatch]) -> bool:
        try:
            if to not in self._open:
                self._open[to] = connected(to, self._key)
                self._open[to].settimeout(_ANSWER_S)
            connection = self._open[to]
            send(connection, Kind.ROWS, _encode(parcel))
            send_rows(connection, batches)
            _, answer = receive(connection)
        except (OSError, EOFError) as error:
            lost = self._open.pop(to, None)
            if lost is not None:
                lost.close()
            raise RowsLostError(f"Rows for lane {parcel.lane} were not sent: its slot has ended ({error}).") from error
        return _decode_kept(answer)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parcel).decode
_decode_kept = msgspec.msgpack.Decoder(bool).decode
