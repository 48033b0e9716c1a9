"""A standby notices at once that the active instance has ended, and after a while that it is silent; strangers learn nothing."""

from __future__ import annotations

import ipaddress
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import msgspec
import pytest

from penstock.errors import ConfigError, StateError
from penstock.runtime.standby import beacon as module
from penstock.runtime.standby.announcement import Announcement, decode_announcement, encode_announcement
from penstock.runtime.standby.beacon import Beacon, Gone, watch
from penstock.state.remote.channel import Channel
from tests.unit.state.remote.strangers import dripping
from verification.harness.processes import ROOT, wait_until

LOOPBACK = "127.0.0.1"
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
PATIENCE_S = 20.0
LONG_S = 60.0
"""A timeout that no test waits for."""

INSTANCE = """
import sys, time
from penstock.runtime.standby.announcement import encode_announcement
from penstock.runtime.standby.beacon import Beacon
print(encode_announcement(Beacon("127.0.0.1", 0).announcement("i1")).decode(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.05)
    monkeypatch.setattr(module, "_TICK_S", 0.02)


@pytest.fixture
def beacon() -> Iterator[Beacon]:
    with closing(Beacon(LOOPBACK, 0)) as made:
        yield made


Watch = Callable[..., "Future[Gone | None]"]


@pytest.fixture
def watching() -> Iterator[Watch]:
    """Watches in a thread, until the instance is gone or the test ends."""
    ended = threading.Event()
    with ThreadPoolExecutor() as threads:

        def start(found: Announcement, timeout_s: float = LONG_S) -> Future[Gone | None]:
            return threads.submit(watch, found, timeout_s, lambda: not ended.is_set())

        yield start
        ended.set()


@pytest.fixture
def instance() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", INSTANCE], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        yield process
        process.kill()


def announced_by(process: subprocess.Popen[str]) -> Announcement:
    assert process.stdout is not None
    return decode_announcement(process.stdout.readline().encode())


def heard_from(found: Announcement) -> None:
    """Wait until the beacon sends beats to whoever knows its key."""
    with connected_to(found) as channel:
        assert channel.receive(most=0) == b""


def connected_to(found: Announcement) -> closing[Channel]:
    return closing(Channel(socket.create_connection((found.host, found.port), PATIENCE_S), found.key, is_server=False))


class TestAnInstanceThatEnds:
    def test_an_orderly_end_is_noticed_at_once(self, beacon: Beacon, watching: Watch) -> None:
        watched = watching(beacon.announcement("i1"))
        time.sleep(0.3)
        assert not watched.done()
        beacon.close()
        gone = watched.result(5)
        assert gone is not None
        assert "nobody listens" in gone.why
        assert time.monotonic() - gone.heard < 5

    def test_a_kill_is_noticed_at_once(self, instance: subprocess.Popen[str], watching: Watch) -> None:
        found = announced_by(instance)
        watched = watching(found)
        heard_from(found)
        assert not watched.done()
        instance.kill()
        gone = watched.result(5)
        assert gone is not None
        assert "nobody listens" in gone.why

    def test_one_that_ended_before_is_gone(self, beacon: Beacon) -> None:
        found = beacon.announcement("i1")
        beacon.close()
        gone = watch(found, LONG_S, lambda: True)
        assert gone is not None
        assert "nobody listens" in gone.why

    def test_a_process_that_is_suspended_is_gone_after_the_timeout(
        self, instance: subprocess.Popen[str], watching: Watch
    ) -> None:
        found = announced_by(instance)
        watched = watching(found, 1.0)
        heard_from(found)
        instance.send_signal(signal.SIGSTOP)
        gone = watched.result(PATIENCE_S)
        assert gone is not None
        assert gone.why == "it has been silent for 1 s"
        assert time.monotonic() - gone.heard >= 1.0


Behaviour = Callable[[socket.socket], None]


class Scripted:
    """A server that treats each connection as the test says; the last behaviour is for all that follow."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = behaviours
        self._listener = socket.create_server((LOOPBACK, 0))
        self.accepted = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def announcement(self) -> Announcement:
        return Announcement("i1", LOOPBACK, self._listener.getsockname()[1], KEY)

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                behave = self._behaviours[min(self.accepted, len(self._behaviours) - 1)]
                self.accepted += 1
                threading.Thread(target=self._treat, args=(behave, connection), daemon=True).start()

    @staticmethod
    def _treat(behave: Behaviour, connection: socket.socket) -> None:
        with suppress(OSError, EOFError, StateError):
            behave(connection)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()


def beats(connection: socket.socket) -> None:
    with closing(Channel(connection, KEY, is_server=True)) as channel:
        while True:
            channel.send(b"")
            time.sleep(0.05)


def leaves(connection: socket.socket) -> None:
    """As a connection that something in between has cut."""
    Channel(connection, KEY, is_server=True).close()


def is_silent(connection: socket.socket) -> None:
    with closing(Channel(connection, KEY, is_server=True)):
        time.sleep(LONG_S)


def says_nothing_at_all(connection: socket.socket) -> None:
    time.sleep(LONG_S)


def is_someone_else(connection: socket.socket) -> None:
    Channel(connection, OTHER_KEY, is_server=True)


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    with ExitStack() as stack:

        def make(*behaviours: Behaviour) -> Scripted:
            return stack.enter_context(closing(Scripted(*behaviours)))

        yield make


class TestAnInstanceOutOfReach:
    def test_a_lost_connection_is_opened_again(self, scripted: Callable[..., Scripted], watching: Watch) -> None:
        server = scripted(leaves, leaves, beats)
        watched = watching(server.announcement, 2.0)
        wait_until("the third connection", lambda: server.accepted == 3, PATIENCE_S)
        time.sleep(0.3)
        assert not watched.done()
        assert server.accepted == 3

    @pytest.mark.parametrize("behaviours", [(is_silent,), (says_nothing_at_all,), (leaves, says_nothing_at_all)])
    def test_silence_counts_after_the_timeout(
        self, scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch, behaviours: Sequence[Behaviour]
    ) -> None:
        monkeypatch.setattr(module, "_HELLO_S", 0.1)
        began = time.monotonic()
        gone = watch(scripted(*behaviours).announcement, 0.5, lambda: True)
        assert gone is not None
        assert gone.why == "it has been silent for 0.5 s"
        assert 0.5 <= time.monotonic() - began < PATIENCE_S

    def test_someone_else_at_its_address_means_that_it_is_gone(self, scripted: Callable[..., Scripted]) -> None:
        began = time.monotonic()
        gone = watch(scripted(is_someone_else).announcement, LONG_S, lambda: True)
        assert gone is not None
        assert "nobody listens" in gone.why
        assert time.monotonic() - began < PATIENCE_S

    def test_a_watch_ends_when_it_is_no_longer_wanted(self, beacon: Beacon) -> None:
        left = iter([True, True, True])
        assert watch(beacon.announcement("i1"), LONG_S, lambda: next(left, False)) is None
        assert watch(beacon.announcement("i1"), LONG_S, lambda: False) is None


@pytest.mark.security(26)
class TestStrangers:
    def test_a_stranger_learns_nothing_and_disturbs_nobody(self, beacon: Beacon, watching: Watch) -> None:
        found = beacon.announcement("i1")
        watched = watching(found)
        with socket.create_connection((found.host, found.port), PATIENCE_S) as stranger, pytest.raises(StateError, match="key"):
            Channel(stranger, OTHER_KEY, is_server=False)
        with socket.create_connection((found.host, found.port), PATIENCE_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: penstock\r\n\r\n" * 10)
            with suppress(ConnectionError):
                while stranger.recv(4_096):
                    pass
        heard_from(found)
        assert not watched.done()

    def test_strangers_keep_no_standby_out(self) -> None:
        with closing(Beacon(LOOPBACK, 0)) as beacon:
            found = beacon.announcement("i1")
            with dripping((found.host, found.port), 300):
                for _ in range(5):
                    heard_from(found)

    def test_each_standby_has_a_place(self) -> None:
        with closing(Beacon(LOOPBACK, 0)) as beacon, ExitStack() as opened:
            found = beacon.announcement("i1")
            standbys = [opened.enter_context(connected_to(found)) for _ in range(40)]
            assert all(channel.receive(most=0) == b"" for channel in standbys)


class TestAddresses:
    def test_loopback_is_announced_for_this_host_only(self, beacon: Beacon) -> None:
        found = beacon.announcement("i1")
        assert (found.incarnation, found.host, found.only_on) == ("i1", LOOPBACK, socket.gethostname())
        assert decode_announcement(encode_announcement(found)) == found
        with closing(Beacon("localhost", 0)) as by_name:
            assert by_name.announcement("i2").only_on == socket.gethostname()

    def test_other_addresses_are_announced_for_all(self, beacon: Beacon, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_ip", lambda address: ipaddress.ip_address("192.0.2.1"))
        assert beacon.announcement("i1").only_on == ""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::"])
    def test_an_address_that_nobody_can_connect_to_is_refused(self, host: str) -> None:
        with pytest.raises(ConfigError, match=r"^standby_address: .* is no address that others could connect to"):
            Beacon(host, 0)

    @pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
    def test_an_address_of_another_host_is_refused(self, host: str) -> None:
        with pytest.raises(ConfigError, match=r"^standby_address: cannot listen at"):
            Beacon(host, 0)

    def test_a_port_in_use_is_refused(self, beacon: Beacon) -> None:
        with pytest.raises(ConfigError, match="port 0"):
            Beacon(LOOPBACK, beacon.announcement("i1").port)

    def test_each_has_a_key_of_its_own(self, beacon: Beacon) -> None:
        with closing(Beacon(LOOPBACK, 0)) as other:
            assert other.announcement("i1").key != beacon.announcement("i1").key


@pytest.mark.security(26)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        msgspec.json.encode({"incarnation": "i1", "host": "h", "port": 0, "key": "a2s="}),
        msgspec.json.encode({"incarnation": "i1", "host": "h", "port": 80, "key": "a2s="}),
        msgspec.json.encode({**msgspec.to_builtins(Announcement("i1", "h", 80, KEY)), "version": 2}),
    ],
)
def test_an_announcement_that_cannot_be_read_is_refused_with_a_cure(data: bytes) -> None:
    with pytest.raises(StateError, match=r"cannot read which instance is active .* start one without standby"):
        decode_announcement(data)
