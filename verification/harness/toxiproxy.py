"""A network that can fail: toxiproxy between a client and a server, driven over its HTTP API."""

from __future__ import annotations

import http.client
import json
from typing import Any

from verification.harness.processes import PARTS, ROOT, HarnessError, free_port, wait_until
from verification.harness.server import Server

SERVER = PARTS / "toxiproxy" / "toxiproxy-server"
TIMEOUT_S = 10


class Toxiproxy(Server):
    """The proxy's process. Closing it ends every proxied connection.

    Example:
        >>> with Toxiproxy() as network, Broker(proxied_port=free_port()) as broker:  # doctest: +SKIP
        ...     proxy = network.proxy(broker.upstream, broker.proxied_port)
        ...     proxy.cut()
    """

    def __init__(self) -> None:
        if not SERVER.exists():
            raise HarnessError(f"no {SERVER.relative_to(ROOT)}; run `make setup`")
        super().__init__("toxiproxy", "toxiproxy-")
        self._port = free_port()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run([str(SERVER), "-host", "127.0.0.1", "-port", str(self._port)])
        wait_until(f"toxiproxy at port {self._port} answers", self._answers, TIMEOUT_S, every_s=0.02)

    def proxy(self, upstream: str, port: int) -> Proxy:
        """Listen on a loopback port and forward everything to `upstream` ("host:port")."""
        name = f"port-{port}"
        self.call("POST", "/proxies", {"name": name, "listen": f"127.0.0.1:{port}", "upstream": upstream, "enabled": True})
        return Proxy(self, name)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        """Call the HTTP API once; raise unless it succeeds."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise HarnessError(f"toxiproxy: {method} {path} returned {answer.status}: {text}")

    def _answers(self) -> bool:
        self._check_it_starts()
        try:
            self.call("GET", "/version")
        except OSError:
            return False
        return True


class Proxy:
    """One proxied port."""

    def __init__(self, server: Toxiproxy, name: str) -> None:
        self._server = server
        self._path = f"/proxies/{name}"
        self._toxics: list[str] = []

    def cut(self) -> None:
        """Close every connection and refuse new ones."""
        self._server.call("POST", self._path, {"enabled": False})

    def hang(self) -> None:
        """Swallow everything in both directions while connections stay open, like a network that loses packets."""
        self._add("timeout", {"timeout": 0})

    def delay(self, latency_ms: int, jitter_ms: int = 0) -> None:
        """Delay everything, in both directions."""
        self._add("latency", {"latency": latency_ms, "jitter": jitter_ms})

    def restore(self) -> None:
        """Undo all faults."""
        while self._toxics:
            self._server.call("DELETE", f"{self._path}/toxics/{self._toxics.pop()}")
        self._server.call("POST", self._path, {"enabled": True})

    def _add(self, toxic: str, attributes: dict[str, int]) -> None:
        for stream in ("upstream", "downstream"):
            name = f"{toxic}-{stream}"
            body = {"name": name, "type": toxic, "stream": stream, "attributes": attributes}
            self._server.call("POST", f"{self._path}/toxics", body)
            self._toxics.append(name)
