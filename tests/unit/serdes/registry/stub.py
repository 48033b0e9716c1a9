"""A schema registry on a port of this machine, as simple as the interface allows: counts requests, and fails on demand."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.requests import RefusalError
from penstock.serdes.registry.schemas import Reference, Registered, Schema, SchemaKind

if TYPE_CHECKING:
    from typing_extensions import Self


class Stub:
    """Answers from `schemas`. The next `failing` answers are 503, the next `silent` ones never come.

    As an OAuth server it gives the next of `tokens`, as statuses and contents, at `/token`; `forms` are what it was asked with.
    """

    def __init__(self) -> None:
        self.schemas = MemorySource()
        self.requests: Counter[str] = Counter()
        self.authorizations: set[str | None] = set()
        self.failing = self.silent = 0
        self.denying = self.incompatible = False
        self.mode = "READWRITE"
        self.tokens: list[tuple[int, Any]] = []
        self.forms: list[dict[str, str]] = []
        self.clusters: set[str | None] = set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.answer(self, None)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"])).decode()
                is_form = self.headers["Content-Type"] == "application/x-www-form-urlencoded"
                stub.answer(self, dict(parse_qsl(content)) if is_form else json.loads(content))

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def answer(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        self.requests[f"{handler.command} {handler.path}"] += 1
        self.authorizations.add(handler.headers["Authorization"])
        self.clusters.add(handler.headers["target-sr-cluster"])
        if self.silent:
            self.silent -= 1
            time.sleep(0.5)
            return
        status, content = self._answer(handler.path, body)
        data = json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/token":
            self.forms.append(body)
            return self.tokens.pop(0)
        if self.failing:
            self.failing -= 1
            return 503, {"error_code": 50301, "message": "busy"}
        if self.denying:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        try:
            return 200, self._found(urlsplit(path).path.strip("/").split("/"), body)
        except RefusalError as error:
            return error.status, {"error_code": error.code, "message": str(error)}

    def _found(self, parts: list[str], body: Any) -> Any:
        schemas = self.schemas
        if parts == ["schemas", "types"]:
            return ["AVRO", "JSON", "PROTOBUF"]
        if parts[0] == "mode":
            return {"mode": self.mode}
        if parts[0] == "compatibility":
            schemas.by_version(unquote(parts[2]), None)
            return {"is_compatible": not self.incompatible}
        if parts[:2] == ["schemas", "ids"]:
            return _shown(schemas.by_id(int(parts[2])))
        subject = unquote(parts[1])
        if body is None:
            which = None if parts[3] == "latest" else int(parts[3])
            return _registered(schemas.by_version(subject, which))
        if parts[2:] == ["versions"]:
            if self.incompatible:
                raise RefusalError(409, 40901, "Schema being registered is incompatible with an earlier schema")
            return {"id": schemas.register(subject, _schema(body))}
        return _registered(schemas.lookup(subject, _schema(body)))


def _schema(body: Any) -> Schema:
    references = tuple(Reference(**each) for each in body.get("references", ()))
    return Schema(SchemaKind(body.get("schemaType", "AVRO")), body["schema"], references)


def _shown(schema: Schema) -> dict[str, Any]:
    shown: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not SchemaKind.AVRO:
        shown["schemaType"] = schema.kind.value
    if schema.references:
        shown["references"] = [asdict(each) for each in schema.references]
    return shown


def _registered(found: Registered) -> dict[str, Any]:
    return {**_shown(found.schema), "id": found.id, "version": found.version}
