"""`SimulatedBeacons`: what standbys hear of an active instance in a simulated world, without connections."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.standby.announcement import Announcement
from penstock.state.remote.channel import KEY_BYTES
from penstock.testing.simulation.machine import Process, SimulatedMachine

_BEAT_S = 0.5
_TICK_S = 0.2


class SimulatedBeacon:
    """The signal of an instance: heard as long as its process goes on."""

    def __init__(self, process: Process, host: str, port: int) -> None:
        self.process: Process = process
        self.is_closed: bool = False
        self._host = host
        self._port = port

    def announcement(self, incarnation: str) -> Announcement:
        """See `Beacon.announcement`."""
        return Announcement(incarnation, self._host, self._port, self._port.to_bytes(KEY_BYTES, "big"))

    def close(self) -> None:
        """See `Beacon.close`."""
        self.is_closed = True


class SimulatedLink:
    """How a standby hears an instance: refused if that has ended, nothing if it stands still or cannot be reached."""

    def __init__(self, machine: SimulatedMachine, beacon: SimulatedBeacon | None, is_silent: Callable[[Process], bool]) -> None:
        self._machine = machine
        self._beacon = beacon
        self._is_silent = is_silent

    def is_alive(self) -> bool:
        """See `HeldLink.is_alive`."""
        beacon = self._beacon
        if beacon is None or self._is_silent(beacon.process):
            self._machine.sleep(_TICK_S)
            return False
        if beacon.is_closed or beacon.process.is_killed:
            raise ConnectionRefusedError
        self._machine.sleep(self._machine.random.random() * _BEAT_S)
        return True

    def close(self) -> None:
        """See `HeldLink.close`."""


class SimulatedBeacons:
    """The signals of a world; `is_silent` says of a process whether others cannot hear it, nor that it has ended."""

    def __init__(self, machine: SimulatedMachine, is_silent: Callable[[Process], bool]) -> None:
        self._machine = machine
        self._is_silent = is_silent
        self._at: dict[int, SimulatedBeacon] = {}

    def open(self, host: str, port: int) -> SimulatedBeacon:
        """See `Beacons.open`."""
        number = port or len(self._at) + 1
        self._at[number] = SimulatedBeacon(self._machine.current, host, number)
        return self._at[number]

    def link(self, found: Announcement) -> SimulatedLink:
        """See `Beacons.link`."""
        return SimulatedLink(self._machine, self._at.get(found.port), self._is_silent)
