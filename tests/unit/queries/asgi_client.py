"""Requests to the query routes through ASGI, without a server."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

from starlette.routing import Router
from starlette.types import Message

from penstock.admin.queries import routes
from penstock.errors import NotReadyError
from penstock.queries import CommittedState


class AsgiClient:
    """A client of the query routes of a committed state."""

    def __init__(self, state: CommittedState | None) -> None:
        self.router = Router(routes(_running(state)))

    def get(self, path: str, **parameters: object) -> tuple[int, Any]:
        return self.request("GET", path, urlencode(parameters).encode())

    def post(self, path: str, body: bytes | object) -> tuple[int, Any]:
        return self.request("POST", path, b"", body if isinstance(body, bytes) else json.dumps(body).encode())

    def request(self, method: str, path: str, query: bytes = b"", body: bytes = b"") -> tuple[int, Any]:
        """Return the status and the parsed response; errors are JSON too."""
        status, answer = asyncio.run(self.raw(method, path, query, body))
        return status, json.loads(answer)

    async def raw(self, method: str, path: str, query: bytes = b"", body: bytes = b"") -> tuple[int, bytes]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "query_string": query}
        await self.router({**scope, "headers": [], "root_path": ""}, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


class _Restoring:
    @property
    def committed_state(self) -> CommittedState:
        raise NotReadyError("Cannot query 'app' now: lanes are being restored (40 %)")


def _running(state: CommittedState | None) -> Any:
    return _Restoring() if state is None else SimpleNamespace(committed_state=state)
