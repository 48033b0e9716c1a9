"""Lanes of another host are read as if they were here, by whoever knows the application's key, and by nobody else."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.advance import advancing
from penstock.errors import LaneMovedError, StateError
from penstock.state import EngineFactory, EngineKind, LaneState, Mark, SpaceBatch
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.engines.lmdb import DATA_FILE, LmdbSnapshot
from penstock.state.remote import hosting
from penstock.state.remote import visits as module
from penstock.state.remote.client import (
    Address,
    LaneClient,
    LaneClients,
    RemoteEngine,
    RemoteSnapshots,
    clients_of,
    end_servers,
)
from penstock.state.remote.hosting import ensure_server
from penstock.state.remote.protocol import Copy, Part, Publish, decode_copied, decode_number, decode_part
from penstock.state.remote.server import LaneServer, Serving
from tests.unit.state.homes import raw

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def end_processes() -> None:
    while hosting._started_here:
        process = hosting._started_here.pop()
        process.terminate()
        process.wait()


def fill(directory: Path, entries: dict[bytes, bytes]) -> None:
    """Write a space as another process would: the file is closed again."""
    engine = EngineFactory(EngineKind.LMDB, str(directory)).open()
    keys = sorted(entries)
    engine.write([SpaceBatch("space", keys, [entries[key] for key in keys])])
    engine.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Address]]:
    """The directory of lanes, and the address of its server."""
    server = LaneServer(Serving(str(tmp_path), "lmdb", "127.0.0.1", KEY, os.getpid()))
    threading.Thread(target=server.run, daemon=True).start()
    yield tmp_path, ("127.0.0.1", server.port)
    server.close()


ENTRIES = {b"%03d" % number: b"v%d" % number for number in range(250)}


@pytest.fixture
def connected() -> Iterator[Callable[..., LaneClient]]:
    """Makes clients that are closed at the end."""
    with ExitStack() as opened:

        def connect(address: Address, key: bytes = KEY) -> LaneClient:
            client = LaneClient(address, key)
            opened.callback(client.close)
            return client

        yield connect


Connect = Callable[..., LaneClient]


class TestReads:
    @pytest.fixture(autouse=True)
    def small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PAGE_ROWS", 7)

    @pytest.fixture
    def engine(self, served: tuple[Path, Address], connected: Connect) -> RemoteEngine:
        fill(served[0] / "0003", ENTRIES)
        return RemoteEngine(connected(served[1]), 3)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(bounds=st.lists(st.none() | st.integers(0, 260), min_size=2, max_size=2), reverse=st.booleans())
    def test_scans_are_those_of_the_engine(self, engine: RemoteEngine, bounds: list[int | None], reverse: bool) -> None:
        lower, upper = [None if bound is None else b"%03d" % bound for bound in bounds]
        within = [key for key in ENTRIES if (lower is None or key >= lower) and (upper is None or key < upper)]
        expected = [(key, ENTRIES[key]) for key in sorted(within, reverse=reverse)]
        assert list(engine.scan("space", lower, upper, reverse)) == expected

    def test_keys_counts_and_sizes(self, engine: RemoteEngine) -> None:
        assert engine.get("space", b"007") == b"v7"
        assert engine.get_many("space", [b"", b"008", b"missing"]) == [None, b"v8", None]
        assert engine.get("nowhere", b"007") is None
        assert engine.count("space") == 250
        assert engine.size("space") > 0

    def test_pages_are_limited_by_their_bytes_too(self, engine: RemoteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PAGE_BYTES", 1)
        assert len(list(engine.scan("space", None, b"020"))) == 20

    @pytest.mark.parametrize("most", [1, 9, 500])
    def test_values_that_are_too_long_for_an_answer_come_in_several(
        self, engine: RemoteEngine, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        monkeypatch.setattr(module, "MOST_BYTES_OF_KEYS", most)
        keys = [b"missing", *ENTRIES, b"missing"]
        ask, answers = LaneClient.ask, list[int]()

        def noting(*arguments: Any) -> Any:
            answer: Any = ask(*arguments)
            answers.append(sum(len(value or b"") for value in answer))
            return answer

        monkeypatch.setattr(LaneClient, "ask", noting)
        assert engine.get_many("space", keys) == [ENTRIES.get(key) for key in keys]
        assert max(answers) <= max(most, len(b"v249"))
        assert engine.get_many("space", []) == []

    def test_it_can_only_be_read(self, engine: RemoteEngine) -> None:
        with pytest.raises(StateError, match="can only be read"):
            engine.write([])
        assert engine.snapshot() is engine
        engine.refresh()
        engine.close()
        engine.close()
        with pytest.raises(StateError, match="closed"):
            engine.get("space", b"007")


def test_a_lane_is_read_as_of_an_earlier_epoch(served: tuple[Path, Address], connected: Connect) -> None:
    engine = EngineFactory(EngineKind.LMDB, str(served[0] / "0000")).open()
    lane = LaneState(engine)
    for epoch, value in enumerate((b"a", b"b", b"c")):
        lane.store(raw()).put(b"k", value)
        lane.commit(epoch, committed=0)
    ids = [lane.head.write_id_of(epoch) for epoch in range(3)]
    engine.close()
    remote = LaneState(RemoteEngine(connected(served[1]), 0))
    assert [remote.head.write_id_of(epoch) for epoch in range(3)] == ids
    assert [remote.read_committed(epoch).store(raw()).get(b"k") for epoch in range(3)] == [b"a", b"b", b"c"]


def test_a_snapshot_does_not_change_and_a_new_one_does(served: tuple[Path, Address]) -> None:
    directory, address = served
    fill(directory / "0000", {b"k": b"1"})
    clients = LaneClients(KEY)
    before = clients.snapshot(address, 0)
    assert before.get("space", b"k") == b"1"
    script = (
        "from tests.unit.state.remote.test_lane_servers import fill; from pathlib import Path; "
        f"fill(Path({str(directory / '0000')!r}), {{b'k': b'2'}})"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert before.get("space", b"k") == b"1"
    assert RemoteSnapshots(clients, lambda: address, 0).take().get("space", b"k") == b"2"
    clients.close()


def timer_of(port: int) -> str:
    """Return the kind of timer that runs for the only connection that was made to a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    (timer,) = [row[5].split(":")[0] for row in rows if row[1] == f"0100007F:{port:04X}" and row[3] == "01"]
    return timer


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs the list of connections of Linux")
def test_the_system_asks_whether_a_silent_client_is_still_there(served: tuple[Path, Address], connected: Connect) -> None:
    directory, address = served
    fill(directory / "0000", ENTRIES)
    RemoteEngine(connected(address), 0)
    acknowledged = time.monotonic() + 5  # until the client's system has, the timer is that of another attempt to send
    while (timer := timer_of(address[1])) == "01" and time.monotonic() < acknowledged:
        time.sleep(0.01)
    assert timer == "02", "the timer that keeps a connection alive"


def test_a_lane_that_was_rebuilt_is_opened_again(served: tuple[Path, Address], connected: Connect) -> None:
    directory, address = served
    client = connected(address)
    fill(directory / "0000", {b"k": b"old"})
    assert RemoteEngine(client, 0).get("space", b"k") == b"old"
    fill(directory / "fresh", {b"k": b"new"})
    shutil.rmtree(directory / "0000")
    (directory / "fresh").rename(directory / "0000")
    assert RemoteEngine(client, 0).get("space", b"k") == b"new"


class TestCopies:
    """A whole store comes as a file of its own."""

    @pytest.mark.parametrize("chunk", [1_000, 1 << 20])
    def test_the_file_is_the_store_as_of_the_snapshot(
        self, served: tuple[Path, Address], connected: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chunk: int
    ) -> None:
        monkeypatch.setattr(module, "CHUNK", chunk)
        fill(served[0] / "0003", ENTRIES)
        engine = RemoteEngine(connected(served[1]), 3)
        script = (
            "from tests.unit.state.remote.test_lane_servers import fill; from pathlib import Path; "
            f"fill(Path({str(served[0] / '0003')!r}), {{b'later': b'2'}})"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        size, parts = engine.copied()
        content = b"".join(parts)
        assert len(content) == size
        (tmp_path / "copy").mkdir()
        (tmp_path / "copy" / DATA_FILE).write_bytes(content)
        copy = EngineFactory(EngineKind.LMDB, str(tmp_path / "copy")).open()
        assert dict(copy.scan("space", None, None)) == ENTRIES
        copy.close()
        assert not list(served[0].glob("tmp*"))

    def test_parts_are_of_a_copy_that_was_made(self, served: tuple[Path, Address], connected: Connect) -> None:
        fill(served[0] / "0000", ENTRIES)
        client = connected(served[1])
        engine = RemoteEngine(client, 0)
        with pytest.raises(LaneMovedError):
            client.ask(Part(1, 0), decode_part)
        assert client.ask(Copy(1), decode_copied) == client.ask(Copy(1), decode_copied) > (0, True)
        assert client.ask(Part(1, 1 << 40), decode_part) == b""
        engine.close()
        with pytest.raises(LaneMovedError):
            client.ask(Part(1, 0), decode_part)

    @pytest.mark.parametrize("is_stuck", [False, True])
    def test_a_copy_may_take_its_time_but_not_stand_still(
        self, served: tuple[Path, Address], monkeypatch: pytest.MonkeyPatch, is_stuck: bool
    ) -> None:
        monkeypatch.setattr(module, "_MOMENT_S", 0.02)
        fill(served[0] / "0000", ENTRIES)
        may_end = threading.Event()

        def slowly(snapshot: LmdbSnapshot, file: int) -> None:
            for _ in range(15):
                if not is_stuck:
                    os.write(file, b"part")
                may_end.wait(0.15)

        monkeypatch.setattr(LmdbSnapshot, "copy_to", slowly)
        with advancing() as followed, closing(LaneClient(served[1], KEY, 1.5)) as client:
            engine = RemoteEngine(client, 0)
            if is_stuck:
                with pytest.raises(LaneMovedError, match=r"has copied 0 bytes of a lane, and no more for a while"):
                    engine.copied()
                may_end.set()
                assert followed.pieces == 0
            else:
                assert engine.copied()[0] == 60
                assert followed.pieces > 5
                assert "which has copied 60 bytes" in followed.where

    def test_a_copy_that_ends_too_early_is_none(
        self, served: tuple[Path, Address], connected: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(served[0] / "0000", ENTRIES)
        monkeypatch.setattr(module, "size_of", lambda file: os.fstat(file.fileno()).st_size + 1)
        _, parts = RemoteEngine(connected(served[1]), 0).copied()
        with pytest.raises(LaneMovedError, match="ends after"):
            list(parts)

    def test_other_engines_refuse(self, tmp_path: Path, connected: Connect) -> None:
        server = LaneServer(Serving(str(tmp_path), "rocksdb", "127.0.0.1", KEY, os.getpid()))
        threading.Thread(target=server.run, daemon=True).start()
        EngineFactory(EngineKind.ROCKSDB, str(tmp_path / "0000")).open().close()
        with pytest.raises(LaneMovedError, match="Only stores of LMDB"):
            RemoteEngine(connected(("127.0.0.1", server.port)), 0).copied()
        server.close()

    def test_a_server_copies_a_lane_to_a_directory(
        self, served: tuple[Path, Address], connected: Connect, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        lane = LaneState(EngineFactory(EngineKind.LMDB, str(served[0] / "0001")).open())
        lane.store(raw()).put(b"k", b"v")
        lane.commit(5, mark=Mark(4, 0, {}, {}))
        lane.close()
        place = str(tmp_path_factory.mktemp("copies"))
        client = connected(served[1])
        assert client.ask(Publish(1, place, "app", 8, 2), decode_number) == 5
        assert [manifest.epoch for manifest in CopyDirectory(place, "app").newest(Layout(8, 2), 1)] == [5]
        with pytest.raises(LaneMovedError, match="Lane 0 is not on this host"):
            client.ask(Publish(0, place, "app", 8, 2), decode_number)
        with pytest.raises(LaneMovedError, match="nowhere"):
            client.ask(Publish(1, "nowhere://there", "app", 8, 2), decode_number)


class TestRefusals:
    def test_a_lane_that_is_not_there(self, served: tuple[Path, Address], connected: Connect) -> None:
        with pytest.raises(LaneMovedError, match="Lane 9 is not on this host"):
            RemoteEngine(connected(served[1]), 9)

    def test_a_server_that_is_gone_and_one_that_returns(self, served: tuple[Path, Address]) -> None:
        fill(served[0] / "0000", {b"k": b"1"})
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()
        with pytest.raises(LaneMovedError, match="does not answer"):
            clients_of(KEY).snapshot(nobody, 0)
        assert clients_of(KEY).snapshot(served[1], 0).get("space", b"k") == b"1"
        clients_of(KEY).close()

    @pytest.mark.security(26)
    def test_a_client_without_the_key(self, served: tuple[Path, Address], connected: Connect) -> None:
        fill(served[0] / "0000", {b"k": b"1"})
        with pytest.raises(LaneMovedError, match="does not answer"):
            RemoteEngine(connected(served[1], OTHER_KEY), 0)
        assert RemoteEngine(connected(served[1]), 0).get("space", b"k") == b"1"

    @pytest.mark.security(26)
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
    @given(noise=st.binary(max_size=200))
    def test_bytes_of_a_stranger_end_the_connection(self, served: tuple[Path, Address], noise: bytes) -> None:
        with socket.create_connection(served[1], 5) as stranger:
            answer = b""
            with suppress(OSError):  # the server may have closed it already
                stranger.sendall(noise + bytes(40))
                stranger.shutdown(socket.SHUT_WR)
                while part := stranger.recv(4096):
                    answer += part
        assert len(answer) <= 16 + 4 + 16  # its random number and its proof, nothing of the lanes

    @pytest.mark.security(26)
    def test_a_request_that_is_none_ends_the_connection(self, served: tuple[Path, Address], connected: Connect) -> None:
        client = connected(served[1])
        with pytest.raises(LaneMovedError):
            client.ask({"no": "request"}, lambda data: 1)  # type: ignore[arg-type]


def test_a_host_has_one_server_for_a_start_and_ends_that_of_an_earlier_one(tmp_path: Path, connected: Connect) -> None:
    lanes = tmp_path / "lanes-2"
    fill(lanes / "0001", {b"k": b"1"})
    [port] = {ensure_server(tmp_path, lanes, "lmdb", "127.0.0.1", KEY, "one") for _ in range(2)}
    engine = RemoteEngine(connected(("127.0.0.1", port)), 1)
    assert engine.get("space", b"k") == b"1"
    other = ensure_server(tmp_path, lanes, "lmdb", "127.0.0.1", OTHER_KEY, "two")
    assert RemoteEngine(connected(("127.0.0.1", other), OTHER_KEY), 1).get("space", b"k") == b"1"
    with pytest.raises(LaneMovedError):
        engine.get("space", b"k")
    end_processes()


def test_executors_of_a_host_share_its_server_until_the_one_that_has_started_it_ends(
    tmp_path: Path, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "lanes-2" / "0001", {b"k": b"1"})

    def port_in(executor: int) -> int:
        monkeypatch.setattr(hosting, "_executor", lambda: executor)
        return ensure_server(tmp_path, tmp_path / "lanes-2", "lmdb", "127.0.0.1", KEY, "one")

    first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        port = port_in(first.pid)
        assert port_in(os.getpid()) == port
        assert RemoteEngine(connected(("127.0.0.1", port)), 1).get("space", b"k") == b"1"
    finally:
        first.kill()
        first.wait()
    after = port_in(os.getpid())
    assert after != port
    assert RemoteEngine(connected(("127.0.0.1", after)), 1).get("space", b"k") == b"1"
    end_processes()


def test_a_server_ends_with_its_application(tmp_path: Path, connected: Connect) -> None:
    fill(tmp_path / "lanes-2" / "0001", {b"k": b"1"})
    port = ensure_server(tmp_path, tmp_path / "lanes-2", "lmdb", "127.0.0.1", KEY, "one")
    [server] = hosting._started_here
    RemoteEngine(connected(("127.0.0.1", port)), 1)  # a client that is still there does not prevent it
    end_servers([("127.0.0.1", port)], OTHER_KEY)
    assert server.poll() is None
    end_servers([("127.0.0.1", port)] * 2, KEY)  # the second one finds nobody
    assert server.wait(10) == 0
    end_processes()
