"""An application serves when it is ready and has nothing left to process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from verification.first_day import serving

ANSWERS: dict[str, tuple[int, Any]] = {}


class Admin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    with HTTPServer((serving.HOST, 0), Admin) as opened:
        monkeypatch.setattr(serving, "PORT", opened.server_port)
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "lags", "is_served"),
    [(200, [0, 0], True), (503, [0, 0], False), (200, [0, 2], False), (200, [0, None], False), (200, [], False)],
    ids=["caught up", "not ready", "behind", "unknown", "not begun"],
)
def test_when_it_serves(server: HTTPServer, status: int, lags: list[int | None], is_served: bool) -> None:
    ANSWERS["/health/ready"] = status, {}
    ANSWERS["/watermarks"] = 200, {"partitions": [{"lag": lag} for lag in lags]}
    assert serving.is_caught_up() == is_served
    assert serving.is_taken(server.server_port)


def test_without_an_application(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.server_close()
    assert not serving.is_caught_up()
    assert not serving.is_taken(serving.PORT)
