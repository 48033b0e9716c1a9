"""Reads of one key over real sockets: answered while they are parsed, like the route would, and guarded like all requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.admin import server
from penstock.admin.queries import Endpoint
from penstock.queries import CommittedState
from penstock.runtime.application import RunningApplication
from penstock.state import EngineKind
from tests.unit.admin.clients import Answer, Application, status_of, until_closed
from tests.unit.admin.conftest import Serve
from tests.unit.epochs.application import Raw
from tests.unit.queries.lanes import Writer

READ = "read-0123456789abcdef"
KEYS = ("plain", "with space", "a+b&c=d", "é", "")
POINT_READ = b"GET /stores/last/get?key=plain HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommittedState]:
    writer = Writer()
    lanes = writer.lanes(tmp_path_factory.mktemp("lanes"), EngineKind.LMDB)
    lanes.step([Raw(key.encode(), b"value of " + key.encode(), 1_000) for key in KEYS])
    state = lanes.state()
    yield state
    state.close()
    writer.close()


@pytest.fixture
def queried(serve: Serve, state: CommittedState, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Starts an application whose stores can be queried, and have been."""
    monkeypatch.setattr(RunningApplication, "committed_state", property(lambda running: state))
    state.current()
    return serve


@pytest.fixture
def unrouted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route of queries fails."""

    async def fail(*arguments: Any) -> None:
        raise AssertionError("this request was to be answered at once")

    monkeypatch.setattr(Endpoint, "__call__", fail)


def routed(application: Application, path: str) -> Answer:
    """Ask in a way that only the route answers."""
    return application.get(path, connection="close")


def without_date(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    left_out = ("date", "connection")
    return answer.status, {name: value for name, value in answer.headers.items() if name not in left_out}, answer.body


class TestAnswers:
    @pytest.mark.usefixtures("unrouted")
    @pytest.mark.parametrize(
        "query", ["key=plain", "key=with+space", "key=with%20space", "key=a%2Bb%26c%3Dd", "key=%C3%A9", "key="]
    )
    def test_a_read_is_answered_without_the_routes(self, queried: Serve, query: str) -> None:
        answer = queried().get(f"/stores/last/get?{query}")
        assert answer.status == 200
        assert answer.json["value"] == f"value of {answer.json['key']}"

    @pytest.mark.parametrize("store", ["last", "words", "brief"])
    @pytest.mark.parametrize("query", ["key=plain", "key=with+space", "key=value", "key=a=b", "key=missing", "key="])
    def test_it_is_answered_as_by_the_route(self, queried: Serve, store: str, query: str) -> None:
        application, path = queried(), f"/stores/{store}/get?{query}"
        assert without_date(application.get(path)) == without_date(routed(application, path))

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/stores/nothing/get?key=plain", 404),
            ("/stores/last/get?key=plain&key=plain", 400),
            ("/stores/last/get?key=plain&more=1", 400),
            ("/stores/last/get?key=%ff", 400),
            ("/stores/words/get?key=base64:!", 404),
            ("/stores/windows/get?key=plain", 400),
            ("/stores/versions/get?key=plain", 200),
            ("/stores/last/get?key=plain&at_least_epoch=0", 200),
            ("/stores/last/get/?key=plain", 404),
            ("/stores//get?key=plain", 404),
            ("/stores/last%2Fget?key=plain", 200),
            ("/stores/l%61st/get?key=plain", 200),
        ],
    )
    def test_everything_else_is_left_to_the_routes(self, queried: Serve, path: str, status: int) -> None:
        application = queried()
        answer = application.get(path)
        assert answer.status == status
        assert without_date(answer) == without_date(routed(application, path))

    def test_an_error_of_the_store_is_answered_with_an_id(self, queried: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: Any) -> None:
            raise OSError("the disk at /secret/path is gone")

        application = queried()
        monkeypatch.setattr(CommittedState, "read", fail)
        answer = application.get("/stores/last/get?key=plain")
        assert (answer.status, set(answer.json)) == (500, {"error", "id"})
        assert b"secret" not in answer.body


class TestAccess:
    PATH = "/stores/last/get?key=plain"

    @pytest.mark.security(2)
    def test_a_read_needs_a_token(self, queried: Serve) -> None:
        application = queried(admin_token="operate-0123456789abcdef", admin_read_token=READ)
        for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": READ}, {"authorization": f"Basic {READ}"}):
            answer = application.get(self.PATH, **wrong)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert b"value" not in answer.body
        assert application.get(self.PATH, authorization=f"Bearer {READ}").status == 200

    @pytest.mark.security(4)
    def test_foreign_hosts_and_pages_are_refused(self, queried: Serve) -> None:
        application = queried()
        assert application.get(self.PATH, host="evil.example").status == 421
        assert application.get(self.PATH, origin="https://evil.example").status == 403
        assert status_of(application.exchange(POINT_READ + b"Host: evil.example\r\nConnection: close\r\n\r\n")) == 421

    @pytest.mark.security(4)
    @pytest.mark.usefixtures("unrouted")
    def test_it_has_the_security_headers(self, queried: Serve) -> None:
        headers = queried().get(self.PATH).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "date" in headers
        assert "server" not in headers


class TestConnections:
    @pytest.mark.usefixtures("unrouted")
    def test_a_connection_serves_many_reads(self, queried: Serve) -> None:
        with queried().connect() as connection:
            for _ in range(300):
                connection.sendall(POINT_READ + b"\r\n")
                received = b""
                while not received.endswith(b"}"):
                    received += connection.recv(4096)
                assert json.loads(received.partition(b"\r\n\r\n")[2])["value"] == "value of plain"

    @pytest.mark.security(5)
    @pytest.mark.parametrize("following", [POINT_READ, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"])
    def test_pipelining_closes_the_connection(self, queried: Serve, following: bytes) -> None:
        answer = queried().exchange(POINT_READ + b"\r\n" + (following + b"\r\n") * 1_000)
        assert answer.count(b"HTTP/1.1 ") <= 1

    @pytest.mark.security(5)
    def test_a_body_is_not_taken_for_the_next_request(self, queried: Serve) -> None:
        inner = POINT_READ + b"\r\n"
        with queried().connect() as connection:
            connection.sendall(POINT_READ + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
            time.sleep(0.2)
            connection.sendall(POINT_READ + b"Connection: close\r\n\r\n")
            assert until_closed(connection).count(b"HTTP/1.1 200") == 2

    def test_a_client_of_http_1_0_is_not_left_waiting(self, queried: Serve) -> None:
        answer = queried().exchange(POINT_READ.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Connection: keep-alive\r\n\r\n")
        assert status_of(answer) == 200

    def test_an_idle_connection_is_closed_and_a_busy_one_is_not(self, queried: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.6)
        with queried().connect() as connection:
            for _ in range(6):  # longer than an idle connection may be
                connection.sendall(POINT_READ + b"\r\n")
                assert status_of(connection.recv(4096)) == 200
                time.sleep(0.2)
            began = time.monotonic()
            assert until_closed(connection) == b""
            assert time.monotonic() - began < 5

    def test_a_request_that_is_being_received_outlives_the_idle_time(
        self, queried: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.3)
        with queried().connect() as connection:
            connection.sendall(POINT_READ + b"\r\n")
            assert status_of(connection.recv(4096)) == 200
            connection.sendall(POINT_READ[:20])
            time.sleep(0.9)
            connection.sendall(POINT_READ[20:] + b"\r\n")
            assert status_of(connection.recv(4096)) == 200
