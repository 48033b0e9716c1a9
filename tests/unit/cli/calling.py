"""Runs commands as a user does, and a fake admin server with given responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from typer.testing import CliRunner, Result

from penstock.cli.commands import commands


def call(*arguments: str, **environment: str) -> Result:
    """Run a command, on a screen that is wide enough for any table."""
    return CliRunner().invoke(commands, arguments, env={"COLUMNS": "300", "TERM": "dumb", **environment})


class FakeAdmin:
    """Responds by path, and records its requests."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        self.answers = dict(answers)
        self.requests: list[tuple[str, str, str | None, Any]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, token: str | None, body: bytes) -> tuple[int, bytes]:
        self.requests.append((method, path, token, json.loads(body) if body else None))
        status, found = self.answers.get(path.partition("?")[0], (404, {"error": "not found"}))
        return status, found if isinstance(found, bytes) else json.dumps(found).encode()


@contextmanager
def serving(answers: Mapping[str, tuple[int, Any]]) -> Iterator[FakeAdmin]:
    """Run a server during the block."""
    admin = FakeAdmin(answers)

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, found = admin.answer(self.command, self.path, self.headers.get("Authorization"), body)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{admin.url}/elsewhere")
            self.end_headers()
            self.wfile.write(found)

        do_GET = do_POST = _any  # noqa: N815 - the names that the base class calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        admin.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield admin
        finally:
            server.shutdown()
            thread.join()
