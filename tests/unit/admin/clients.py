"""Clients of an admin server: one that speaks proper HTTP, and one that sends raw bytes."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.admin.server import AdminServer
from penstock.runtime.application import RunningApplication

TIMEOUT_S = 20


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Application:
    """A started application, as its clients see it."""

    def __init__(self, running: RunningApplication) -> None:
        assert running.admin_url is not None
        self.running = running
        self.url = running.admin_url
        self.port = urlsplit(self.url).port or 0
        self.server: AdminServer = running.health.indicators["admin server"].__self__  # type: ignore[attr-defined]

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        trust: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Answer:
        """Send a request; `content_type=` is the header Content-Type."""
        host = "127.0.0.1"
        if trust is None:
            connection = http.client.HTTPConnection(host, self.port, timeout=TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(host, self.port, timeout=TIMEOUT_S, context=trust)
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: Any) -> Answer:
        return self.ask(path, **headers)

    def post(self, path: str, body: object, **headers: Any) -> Answer:
        headers = {"content_type": "application/json", **headers}
        return self.ask(path, "POST", body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def exchange(self, *pieces: bytes) -> bytes:
        """Send bytes as they are, and read until the server closes the connection."""
        with self.connect() as connection:
            with suppress(ConnectionError):  # the server may close it before everything is sent
                for piece in pieces:
                    connection.sendall(piece)
            return until_closed(connection)


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65536):
            received += piece
    return received


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])
