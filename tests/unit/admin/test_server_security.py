"""The admin server under bad requests and bad clients: items 1 to 13 of the security checklist, over real sockets."""

from __future__ import annotations

import gc
import hmac
import json
import logging
import re
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock import App, Topology
from penstock.admin import health, listener, protocol, reports, server
from penstock.admin.access import Access, Tokens
from penstock.admin.routes import ASKING, routes
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError
from tests.unit.admin.clients import Application, status_of, until_closed
from tests.unit.admin.conftest import PATIENCE_S, Serve, Stage

OPERATE = "operate-0123456789abcdef"
READ = "read-0123456789abcdef"
CHANGE = {"logger": "penstock", "level": None}
HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /logs/level HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def bearer(token: str) -> str:
    return f"Bearer {token}"


@pytest.fixture
def with_tokens(serve: Serve) -> Application:
    return serve(admin_token=OPERATE, admin_read_token=READ)


class TestWhereItListens:
    @pytest.mark.security(1)
    def test_it_listens_on_loopback_only_by_default(self, application: Application) -> None:
        assert Config(kafka={"bootstrap.servers": "nowhere:1"}).admin_endpoint == ("127.0.0.1", 7070)
        listening = [place for place in psutil.Process().net_connections("tcp") if place.status == psutil.CONN_LISTEN]
        assert [place.laddr.ip for place in listening if place.laddr.port == application.port] == ["127.0.0.1"]

    @pytest.mark.security(1)
    @pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "0", "[::ffff:0.0.0.0]"])
    @pytest.mark.parametrize("given", [(), ("token",), ("tls",)])
    def test_other_addresses_need_a_token_and_tls(
        self, stage: Stage, topology: Topology, certificate: tuple[Path, Path], host: str, given: tuple[str, ...]
    ) -> None:
        chain, key = certificate
        settings: dict[str, Any] = {}
        settings |= {"admin_token": OPERATE} if "token" in given else {}
        settings |= {"admin_certificate": chain, "admin_key": key} if "tls" in given else {}
        with pytest.raises(ConfigError, match=r"admin_address: .* can be reached from other machines") as refused:
            App("app", topology).start(bootstrap_servers="nowhere:1", admin_address=f"{host}:0", **settings)
        for name in ("admin_token", "admin_certificate", "admin_key"):
            assert (name in str(refused.value).partition("; set ")[2]) is (name not in settings)

    @pytest.mark.security(1)
    def test_other_addresses_work_with_a_token_and_tls(self, serve: Serve, certificate: tuple[Path, Path]) -> None:
        chain, key = certificate
        application = serve(admin_address="0.0.0.0:0", admin_token=OPERATE, admin_certificate=chain, admin_key=key)
        trust = ssl.create_default_context(cafile=str(chain))
        assert application.url == f"https://0.0.0.0:{application.port}"
        assert application.ask("/state", trust=trust).status == 401
        assert application.ask("/state", trust=trust, authorization=bearer(OPERATE)).status == 200
        assert application.ask("/health/live", trust=trust).json == {"status": "ok"}

    @pytest.mark.security(1)
    def test_tls_is_at_least_1_2_and_plain_text_is_not_answered(self, serve: Serve, certificate: tuple[Path, Path]) -> None:
        chain, key = certificate
        application = serve(admin_certificate=chain, admin_key=key)
        trust = ssl.create_default_context(cafile=str(chain))
        with application.connect() as plain, trust.wrap_socket(plain, server_hostname="localhost") as connection:
            assert connection.version() in {"TLSv1.2", "TLSv1.3"}
        assert application.exchange(HEAD + b"\r\n").find(b"HTTP/1.1") == -1
        context = application.server._tls
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2

    def test_a_port_in_use_is_named_with_the_cure(self, application: Application, serve: Serve) -> None:
        with pytest.raises(ConfigError, match=rf"cannot listen at '127\.0\.0\.1:{application.port}': .*in use.*127.0.0.1:0"):
            serve(admin_address=f"127.0.0.1:{application.port}")

    def test_a_host_that_is_not_this_machine_is_refused(self, serve: Serve) -> None:
        with pytest.raises(ConfigError, match=r"admin_address: cannot resolve 'no\.such.host.invalid'"):
            serve(admin_address="no.such.host.invalid:0")

    def test_a_wrong_certificate_or_key_is_refused(self, serve: Serve, certificate: tuple[Path, Path], tmp_path: Path) -> None:
        chain, key = certificate
        with pytest.raises(ConfigError, match="admin_key: not set; TLS needs both"):
            serve(admin_certificate=chain)
        with pytest.raises(ConfigError, match=r"admin_key: cannot read '.*none': No such file"):
            serve(admin_certificate=chain, admin_key=tmp_path / "none")
        with pytest.raises(ConfigError, match="must be a certificate chain and its unencrypted private key"):
            serve(admin_certificate=key, admin_key=chain)


class TestTokens:
    @pytest.mark.security(2)
    def test_all_wrong_tokens_get_the_same_answer(self, with_tokens: Application, caplog: pytest.LogCaptureFixture) -> None:
        wrong = [bearer(OPERATE[:-1]), bearer(f"{OPERATE}x"), bearer(READ.upper()), f"Basic {OPERATE}", OPERATE]
        tries = ["", "Bearer", "Bearer ", *wrong]
        answers = [with_tokens.get("/state", **({"authorization": text} if text else {})) for text in tries]
        answers.append(with_tokens.get(f"/state?token={OPERATE}&access_token={OPERATE}"))
        assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
        assert answers[0].headers["www-authenticate"] == "Bearer"
        assert OPERATE not in caplog.text

    @pytest.mark.security(2)
    def test_tokens_are_compared_in_constant_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compared: list[tuple[bytes, bytes]] = []
        compare_digest = hmac.compare_digest

        def compare(given: bytes, right: bytes) -> bool:
            compared.append((given, right))
            return compare_digest(given, right)

        monkeypatch.setattr(hmac, "compare_digest", compare)
        tokens = Tokens(OPERATE.encode(), READ.encode())
        for given, access in ((OPERATE, Access.OPERATE), (READ, Access.READ), ("no", Access.NOTHING)):
            compared.clear()
            assert tokens.granted(bearer(given).encode()) is access
            assert compared == [(given.encode(), OPERATE.encode()), (given.encode(), READ.encode())]
        assert repr(tokens) == "Tokens()"

    @pytest.mark.security(2)
    @pytest.mark.parametrize("token", ["", "short", " " * 20, "x" * 15, "ümlaut-" * 4, "line\nend-0123456789"])
    def test_a_weak_token_is_refused_without_showing_it(self, serve: Serve, token: str) -> None:
        with pytest.raises(ConfigError, match="admin_token: a token needs at least 16 ASCII characters") as refused:
            serve(admin_token=token)
        assert not token or token not in str(refused.value)

    @pytest.mark.security(2)
    def test_one_token_for_both_is_refused(self, serve: Serve) -> None:
        with pytest.raises(ConfigError, match="admin_read_token: must differ from admin_token"):
            serve(admin_token=OPERATE, admin_read_token=OPERATE)

    @pytest.mark.security(3)
    def test_the_read_token_cannot_change_anything(self, with_tokens: Application) -> None:
        assert with_tokens.get("/logs/level", authorization=bearer(READ)).status == 200
        assert with_tokens.post("/logs/level", CHANGE, authorization=bearer(READ)).status == 403
        assert with_tokens.post("/logs/level", CHANGE).status == 401
        for path in ("/pause", "/resume"):
            assert with_tokens.post(path, {}, authorization=bearer(READ)).status == 403
            assert with_tokens.post(path, {}).status == 401
        assert with_tokens.running.is_paused is False
        assert with_tokens.get("/pause", authorization=bearer(READ)).status == 200
        assert with_tokens.post("/logs/level", CHANGE, authorization=bearer(OPERATE)).status == 200
        assert with_tokens.get("/state", authorization=bearer(OPERATE)).status == 200

    @pytest.mark.security(3)
    def test_with_only_a_read_token_set_nothing_can_be_changed(self, serve: Serve) -> None:
        application = serve(admin_read_token=READ)
        assert application.get("/state").status == 401
        assert application.post("/logs/level", CHANGE, authorization=bearer(READ)).status == 403
        assert application.post("/logs/level", CHANGE, authorization="Bearer ").status == 401

    @pytest.mark.security(3)
    def test_only_a_post_changes_anything(self, application: Application) -> None:
        posted = [route.path for route in routes(application.running) if "POST" in (route.methods or ())]
        assert [path for path in posted if not ASKING.fullmatch(path)] == ["/logs/level", "/pause", "/resume", "/lanes"]
        level = logging.getLogger().level
        assert application.get('/logs/level?logger=root&level="DEBUG"').status == 200
        assert application.ask("/logs/level", "GET", b'{"logger":"root","level":"DEBUG"}').status == 200
        assert logging.getLogger().level == level

    @pytest.mark.security(3)
    def test_probes_need_no_token_and_get_no_details(self, with_tokens: Application) -> None:
        for path in ("/health/live", "/health/ready"):
            assert with_tokens.get(path).json == {"status": "ok"}
            assert with_tokens.get(path, authorization=bearer("wrong")).json == {"status": "ok"}
            assert with_tokens.get(path, authorization=bearer(READ)).json["state"] == "running"


class TestBrowsers:
    @pytest.mark.security(4)
    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.", "a b", ""]
    )
    def test_an_unknown_host_is_misdirected(self, application: Application, host: str) -> None:
        assert application.get("/health/live", host=host).status == 421

    @pytest.mark.security(4)
    def test_no_host_or_two_are_misdirected(self, application: Application) -> None:
        assert status_of(application.exchange(b"GET /state HTTP/1.1\r\nConnection: close\r\n\r\n")) == 421
        assert status_of(application.exchange(HEAD + b"Host: evil.example\r\nConnection: close\r\n\r\n")) == 421

    @pytest.mark.security(4)
    def test_known_hosts_are_accepted(self, serve: Serve) -> None:
        application = serve(admin_hosts="word-count.internal,other")
        for host in ("localhost", "LOCALHOST:7070", "127.0.0.1:1", "[::1]:7070", "Word-Count.internal:80", "other"):
            assert application.get("/health/live", host=host).status == 200

    @pytest.mark.security(4)
    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost"])
    def test_requests_with_an_origin_are_refused(self, application: Application, origin: str) -> None:
        for answer in (application.get("/state", origin=origin), application.post("/logs/level", CHANGE, origin=origin)):
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]

    @pytest.mark.security(4)
    def test_a_form_of_another_site_cannot_post(self, application: Application) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"):
            assert application.post("/logs/level", CHANGE, content_type=kind).status == 415
        body = json.dumps(CHANGE).encode()
        nothing = b"POST /logs/level HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
        assert status_of(application.exchange(nothing % (len(body), body))) == 415

    @pytest.mark.security(4)
    def test_every_answer_has_security_headers(self, application: Application) -> None:
        answers = [
            application.get("/state"),
            application.get("/nowhere"),
            application.get("/state", host="evil.example"),
            application.ask("/state", "TRACE"),
        ]
        assert [answer.status for answer in answers] == [200, 404, 421, 405]
        for answer in answers:
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
            assert not [name for name in answer.headers if name.startswith("access-control")]


def chunked(size: int, times: int) -> list[bytes]:
    return [b"%x\r\n%s\r\n" % (size, b"x" * size)] * times


BAD_REQUESTS = {
    "request line of 64 KiB": (414, [b"GET /" + b"a" * 65_536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "endless request line": (414, [b"GET /", *[b"a" * 65_536] * 32]),
    "1000 headers": (431, [HEAD, *[b"x-%d: y\r\n" % number for number in range(1000)], b"\r\n"]),
    "header of 1 MiB": (431, [HEAD, b"x: ", *[b"y" * 65_536] * 16, b"\r\n\r\n"]),
    "header name of 1 MiB": (431, [HEAD, *[b"y" * 65_536] * 16, b": x\r\n\r\n"]),
    "body too long": (413, [POST, b"Content-Length: 70000\r\n\r\n", b"x" * 70_000]),
    "body too long, chunked": (413, [POST, b"Transfer-Encoding: chunked\r\n\r\n", *chunked(4096, 20), b"0\r\n\r\n"]),
    "chunked bomb": (413, [POST, b"Transfer-Encoding: chunked\r\n\r\n", *chunked(65_536, 64)]),
    "chunk of 4 GiB": (413, [POST, b"Transfer-Encoding: chunked\r\n\r\n", b"ffffffff\r\n", *[b"x" * 65_536] * 8]),
    "endless chunk extension": (413, [POST, b"Transfer-Encoding: chunked\r\n\r\n", b"1;", *[b"x" * 65_536] * 8]),
    "tiny chunks": (413, [POST, b"Transfer-Encoding: chunked\r\n\r\n", *chunked(1, 30_000)]),
    "length and chunked": (400, [POST, b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]),
    "two lengths": (400, [POST, b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"]),
    "the same length twice": (400, [POST, b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"]),
    "list of lengths": (400, [POST, b"Content-Length: 3, 3\r\n\r\nabc"]),
    "negative length": (400, [POST, b"Content-Length: -1\r\n\r\n"]),
    "length with a sign": (400, [POST, b"Content-Length: +3\r\n\r\nabc"]),
    "length of 23 digits": (400, [POST, b"Content-Length: 99999999999999999999999\r\n\r\n"]),
    "unknown coding": (400, [POST, b"Transfer-Encoding: cow\r\n\r\n"]),
    "chunked inside out": (400, [POST, b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"]),
    "trailer": (400, [POST, b"Transfer-Encoding: chunked\r\n\r\n0\r\nOrigin: x\r\n\r\n"]),
    "bare line feeds": (400, [b"GET /health/live HTTP/1.1\nHost: localhost\n\n"]),
    "bare line feed in a header": (400, [b"GET /health/live HTTP/1.1\r\nHost: localhost\nx: y\r\n\r\n"]),
    "NUL in a header": (400, [HEAD, b"x: a\0b\r\n\r\n"]),
    "NUL in the path": (400, [b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "folded header": (400, [HEAD, b"x: a\r\n b\r\n\r\n"]),
    "space before the colon": (400, [HEAD, b"x : a\r\n\r\n"]),
    "HTTP/0.9": (400, [b"GET /health/live\r\n\r\n"]),
    "HTTP/2": (400, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]),
    "HTTP/9.9": (400, [b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"]),
    "a TLS handshake": (400, [bytes.fromhex("16030100a5010000a10303")]),
    "TRACE": (405, [b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "CONNECT": (405, [b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "OPTIONS": (405, [b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "DELETE": (405, [b"DELETE /state HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "upgrade": (400, [HEAD, b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"]),
    "through a proxy": (400, [b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    "bytes above ASCII in the path": (400, ["GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()]),
}


class TestBadRequests:
    @pytest.mark.security(5)
    @pytest.mark.parametrize("name", BAD_REQUESTS)
    def test_it_is_refused_and_the_connection_closed(self, application: Application, name: str) -> None:
        status, pieces = BAD_REQUESTS[name]
        answer = application.exchange(*pieces)
        if answer:  # if the client is still sending, the answer can be lost with the connection
            assert status_of(answer) == status
            assert b"\r\nconnection: close\r\n" in answer
            assert b"Traceback" not in answer
        else:
            assert sum(map(len, pieces)) > 65_536
        assert application.get("/health/live").status == 200

    @pytest.mark.security(5)
    def test_memory_stays_flat(self, application: Application) -> None:
        def attack() -> int:
            for _, pieces in BAD_REQUESTS.values():
                application.exchange(*pieces)
            gc.collect()
            taken: int = psutil.Process().memory_info().rss
            return taken

        attack()
        before = attack()
        grown = [attack() - before for _ in range(4)]
        assert grown[-1] < 10 * 2**20

    @pytest.mark.security(5)
    def test_pipelining_closes_the_connection(self, application: Application) -> None:
        answer = application.exchange((HEAD + b"\r\n") * 1000)
        assert answer.count(b"HTTP/1.1 ") <= 1

    def test_a_long_request_within_the_limits_is_accepted(self, application: Application) -> None:
        head = HEAD + b"".join(b"x-%d: %s\r\n" % (number, b"y" * 200) for number in range(50)) + b"Connection: close\r\n\r\n"
        assert status_of(application.exchange(head)) == 200
        body = json.dumps({**CHANGE, "more": "x" * 60_000}).encode()
        answer = application.post("/logs/level", body)
        assert (answer.status, answer.json["error"]) == (400, "Invalid body: expected a JSON object with 'logger' and 'level'.")

    def test_a_connection_serves_many_requests(self, application: Application) -> None:
        with application.connect() as connection:
            for _ in range(300):
                connection.sendall(HEAD + b"\r\n")
                received = b""
                while not received.endswith(b"}"):
                    received += connection.recv(4096)
                assert status_of(received) == 200


class TestSlowClients:
    @pytest.mark.security(6)
    def test_200_slow_clients_delay_no_other_request(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protocol, "REQUEST_S", 1.5)
        threads = threading.active_count()
        with ExitStack() as stack:
            slow = [stack.enter_context(application.connect()) for _ in range(200)]
            began = time.monotonic()
            head = iter(HEAD + POST * 100)
            took = []
            while time.monotonic() < began + 2.5:
                byte = bytes([next(head)])
                for connection in slow:
                    with suppress(ConnectionError):
                        connection.send(byte)
                asked = time.monotonic()
                assert application.get("/health/live").status == 200
                took.append(time.monotonic() - asked)
                time.sleep(0.05)
            assert sorted(took)[len(took) * 9 // 10] < 0.5
            assert threading.active_count() <= threads + 1
            for connection in slow:  # each exceeded its deadline
                answer = until_closed(connection)
                assert not answer or status_of(answer) == 408
        assert len(application.server._state.connections) == 0

    @pytest.mark.security(6)
    @pytest.mark.parametrize(
        "pieces",
        [
            [b""],
            [b"\r\n"] * 8,
            [HEAD],
            [POST, b"Content-Length: 9\r\n\r\n", b"{"],
            [POST, b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n"],
        ],
        ids=["nothing", "line ends only", "half a head", "half a body", "half a chunk"],
    )
    def test_a_request_has_a_deadline(
        self, application: Application, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
    ) -> None:
        monkeypatch.setattr(protocol, "REQUEST_S", 0.3)
        with application.connect() as connection:
            for piece in pieces:
                with suppress(ConnectionError):
                    connection.sendall(piece)
                time.sleep(0.05)
            began = time.monotonic()
            assert status_of(until_closed(connection)) == 408
            assert time.monotonic() - began < 2

    @pytest.mark.security(6)
    def test_line_ends_do_not_keep_a_connection_alive(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protocol, "REQUEST_S", 0.3)
        with application.connect() as connection:
            connection.sendall(HEAD + b"\r\n")
            time.sleep(0.1)
            connection.sendall(b"\r\n")
            assert until_closed(connection).count(b"HTTP/1.1 408") == 1

    @pytest.mark.security(6)
    def test_beyond_the_limit_the_longest_idle_connection_is_closed(
        self, application: Application, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(protocol, "CONNECTIONS", 20)
        with ExitStack() as stack:
            slow = [stack.enter_context(application.connect()) for _ in range(60)]
            assert application.get("/health/live").status == 200
            assert len(application.server._state.connections) <= 21
            slow[-1].sendall(HEAD + b"Connection: close\r\n\r\n")
            assert status_of(until_closed(slow[-1])) == 200
            assert until_closed(slow[0]) == b""

    @pytest.mark.security(6)
    def test_a_client_that_does_not_read_is_disconnected(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protocol, "WRITE_S", 0.3)
        monkeypatch.setattr(reports, "thread_stacks", lambda: "x" * 20_000_000)
        with application.connect() as connection:
            connection.sendall(b"GET /debug/threads HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deadline = time.monotonic() + PATIENCE_S
            while not application.server._state.connections:
                assert time.monotonic() < deadline
            while application.server._state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert len(until_closed(connection)) < 20_000_000

    def test_a_client_that_reads_slowly_gets_the_whole_answer(
        self, application: Application, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reports, "thread_stacks", lambda: "x" * 20_000_000)
        with application.connect() as connection:
            connection.sendall(b"GET /debug/threads HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            time.sleep(0.3)
            assert until_closed(connection).count(b"x") >= 20_000_000

    def test_an_answer_that_has_begun_is_not_mixed_with_another(
        self, application: Application, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(protocol, "REQUEST_S", 0.3)
        monkeypatch.setattr(reports, "thread_stacks", lambda: "x" * 20_000_000)
        with application.connect() as connection:
            connection.sendall(b"GET /debug/threads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            time.sleep(0.6)
            assert until_closed(connection).count(b"HTTP/1.1 ") == 1

    def test_an_idle_connection_is_closed(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.2)
        with serve().connect() as connection:
            connection.sendall(HEAD + b"\r\n")
            began = time.monotonic()
            assert status_of(until_closed(connection)) == 200
            assert time.monotonic() - began < 5

    @pytest.mark.security(6)
    def test_an_unfinished_tls_handshake_is_dropped_after_a_short_time(
        self, serve: Serve, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listener, "_SOCKETS", 10)
        monkeypatch.setattr(server, "_HANDSHAKE_S", 0.5)
        chain, key = certificate
        application = serve(admin_certificate=chain, admin_key=key)
        files = psutil.Process().num_fds()
        with ExitStack() as stack:
            slow = [stack.enter_context(application.connect()) for _ in range(40)]
            time.sleep(0.2)
            assert psutil.Process().num_fds() <= files + len(slow) + 10
            for connection in slow:
                until_closed(connection)
        assert application.ask("/health/live", trust=ssl.create_default_context(cafile=str(chain))).status == 200


@pytest.mark.security(7)
@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "/health/../config",
        "/%2e%2e%2fetc%2fpasswd",
        "/health/%2e%2e/config",
        "/config%00",
        "//config",
        "/config/",
        "/config;x",
        "/%c0%ae%c0%ae/config",
        "/%c0%afconfig",
        "/\\config",
        "/%5cconfig",
        "/CONFIG",
        "/%252e%252e/config",
        "/config%20",
        "/config%0a",
        "/.",
    ],
)
def test_path_tricks_lead_nowhere(application: Application, path: str) -> None:
    raw = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = application.exchange(raw.encode())
    assert (status_of(answer), b"bootstrap.servers" in answer) == (404, False)


@pytest.mark.security(9)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"logger": "root", "logger": "py4j", "level": null}',
        b'{"logger": "root", "level": NaN}',
        b'{"logger": "root", "level": Infinity}',
        b'{"logger": "root", "level": 1e400}',
        b'{"logger": "root", "level": %s}' % (b"9" * 5000),
        b'{"logger": "root", "level": %s1%s}' % (b"[" * 10_000, b"]" * 10_000),
        b'{"logger": "\\ud800", "level": null}',
        b'{"logger": ["root"], "level": null}',
        b'{"logger": {}, "level": {}}',
        b'{"logger": "root", "level": true}',
        b'{"logger": "root", "level": 10}',
    ],
    ids=range(16),
)
def test_invalid_json_is_refused(application: Application, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogger().level
    answer = application.post("/logs/level", body)
    assert (answer.status, list(answer.json)) == (400, ["error"])
    assert "Traceback" not in caplog.text
    assert logging.getLogger().level == before


EVIL = "a\r\nINJECTED line\x1b[31mred\u202ereversed\u2028\x00"


class TestFailures:
    @pytest.mark.security(10)
    def test_an_error_answer_has_only_an_id_and_the_log_has_the_details(
        self, application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(running: Any) -> Any:
            try:
                raise KeyError("deep below")
            except KeyError as error:
                raise RuntimeError(f"c4n4ry {EVIL}") from error

        monkeypatch.setattr(reports, "state_report", fails)
        answer = application.get("/state")
        assert answer.status == 500
        assert list(answer.json) == ["error", "id"]
        assert b"c4n4ry" not in answer.body
        assert b"Traceback" not in answer.body
        assert answer.json["id"] in caplog.text
        assert "RuntimeError: 'c4n4ry a\\r\\nINJECTED line\\x1b[31mred\\u202ereversed" in caplog.text
        assert "caused by KeyError" in caplog.text
        assert "in fails" in caplog.text
        assert not re.search("\nINJECTED|[\x1b\r\x00\u202e\u2028]", caplog.text)
        assert application.get("/health/live").status == 200

    @pytest.mark.security(10)
    def test_clients_cannot_inject_log_lines(
        self, application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        path = "/state?x=%0d%0aINJECTED%1b%5b31m%e2%80%ae"
        application.get(path, user_agent="\x1b[31mINJECTED", authorization="Bearer \x1b[31mINJECTED", host="INJECTED\x1b")
        application.get("/%0d%0aINJECTED%1b%5b31m%e2%80%ae")
        application.exchange(b"INJECTED / \x1b[31m\r\n\r\n")
        application.post("/logs/level", {"logger": EVIL, "level": EVIL})
        assert "INJECTED" not in caplog.text

    @pytest.mark.security(11)
    def test_metrics_have_no_labels_from_data(self, application: Application) -> None:
        text = application.get("/metrics").body.decode()
        assert not re.search(r'(key|value|path|user)="', text)

    @pytest.mark.security(11)
    def test_live_fails_after_an_epochs_timeout_and_ready_fails_until_restored(self, serve: Serve, stage: Stage) -> None:
        application = serve(is_up=False, epoch_timeout="1s")
        assert (application.get("/health/live").status, application.get("/health/ready").status) == (200, 503)
        stage.may_start.set()
        assert application.running.wait_until_running(PATIENCE_S)
        application.running.recorder.epoch_begins(8, "job")
        deadline = time.monotonic() + PATIENCE_S
        while (answer := application.get("/health/live")).status == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer.json["problems"][0]["what"] == "stalled"
        assert application.get("/health/ready").status == 503


class TestTheEnd:
    @pytest.mark.security(12)
    def test_an_application_reports_that_its_server_died(
        self, application: Application, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = application.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(loop.stop)
        application.server._thread.join(PATIENCE_S)
        [problem] = application.running.health.ready()
        assert (problem.what, problem.why) == ("admin server", "the server's thread has ended: see the log")
        assert "word-count: admin server failed and no longer answers" in caplog.text
        with pytest.raises(ConnectionError):
            application.get("/health/live")

    @pytest.mark.security(12)
    def test_the_server_stops_when_the_application_ends(self, application: Application) -> None:
        application.running.close()
        with pytest.raises(ConnectionError):
            application.get("/health/live")

    @pytest.mark.security(12)
    def test_the_server_stops_when_the_application_fails(self, application: Application, stage: Stage) -> None:
        stage.failure = BrokerError("no broker")
        with pytest.raises(BrokerError):
            application.running.wait(PATIENCE_S)
        with pytest.raises(ConnectionError):
            application.get("/health/live")

    @pytest.mark.security(12)
    def test_it_stops_within_its_grace_period_with_100_open_requests(self, application: Application) -> None:
        may_end = threading.Event()

        def hangs() -> str | None:
            may_end.wait(PATIENCE_S)
            return None

        application.running.health.indicators["slow"] = hangs
        with ExitStack() as stack:
            waiting = [stack.enter_context(application.connect()) for _ in range(50)]
            for connection in waiting:
                connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            halves = [stack.enter_context(application.connect()) for _ in range(50)]
            for connection in halves:
                connection.sendall(HEAD)
            while len(application.server._state.connections) < 100:
                time.sleep(0.01)
            began = time.monotonic()
            application.running.close()
            assert time.monotonic() - began < server._GRACE_S + health._CHECKS_S
            assert {status_of(answer) for connection in waiting if (answer := until_closed(connection))} <= {503}
            assert {until_closed(connection) for connection in halves} == {b""}
        may_end.set()

    def test_pending_requests_are_answered_before_it_stops(self, application: Application) -> None:
        may_end = threading.Event()

        def waits() -> str | None:
            may_end.wait(PATIENCE_S)
            return None

        application.running.health.indicators["slow"] = waits
        with application.connect() as connection:
            connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not application.server._state.tasks:
                time.sleep(0.01)
            closing = threading.Thread(target=application.server.close)
            closing.start()
            time.sleep(0.1)
            may_end.set()
            assert status_of(until_closed(connection)) == 200
            closing.join(PATIENCE_S)

    def test_off_starts_no_server(self, stage: Stage, topology: Topology) -> None:
        stage.may_start.set()
        with App("unheard", topology).start(bootstrap_servers="nowhere:1", admin_address="off") as running:
            assert running.admin_url is None
            assert running.health.indicators == {}
            assert "penstock-unheard-admin" not in {thread.name for thread in threading.enumerate()}
        with App("unheard", topology).start(bootstrap_servers="nowhere:1", admin_address="127.0.0.1:0"):
            assert "penstock-unheard-admin" in {thread.name for thread in threading.enumerate()}


def test_a_listening_socket_closes_connections_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_SOCKETS", 3)
    config = Config(kafka={"bootstrap.servers": "nowhere:1"}, admin_address="127.0.0.1:0")
    with ExitStack() as stack:
        bound = stack.enter_context(listener.listen(config))
        bound.setblocking(True)
        clients = [stack.enter_context(socket.create_connection(bound.getsockname(), PATIENCE_S)) for _ in range(5)]
        accepted = [stack.enter_context(bound.accept()[0]) for _ in range(3)]
        with pytest.raises(ConnectionAbortedError):
            bound.accept()
        assert clients[3].recv(1) == b""
        accepted[0].close()
        stack.enter_context(bound.accept()[0])
