"""Prometheus, which scrapes what a test serves: `with Prometheus([port]) as prometheus`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from verification.harness.processes import PARTS, free_port, wait_until
from verification.harness.server import Server

PROGRAMS = PARTS / "prometheus"

_CONFIG = """
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: {rules}
scrape_configs:
  - job_name: penstock
    static_configs:
      - targets: {targets}
"""


def promtool(*arguments: str, given: bytes = b"") -> str:
    """The output of promtool; raises if it reports an error."""
    done = subprocess.run([PROGRAMS / "promtool", *arguments], input=given, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode()
    if done.returncode:
        raise AssertionError(f"promtool {' '.join(arguments)} ended with {done.returncode}:\n{said}")
    return said


class Prometheus(Server):
    """A server with its own port and data; `ports` on loopback are its targets."""

    def __init__(self, ports: Sequence[int], rules: Sequence[Path] = ()) -> None:
        super().__init__("Prometheus", "prometheus-")
        self._port = free_port()
        config = _CONFIG.format(
            rules=json.dumps([str(path) for path in rules]), targets=json.dumps([f"127.0.0.1:{port}" for port in ports])
        )
        (self._directory / "prometheus.yml").write_text(config, encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._run(
            [
                str(PROGRAMS / "prometheus"),
                f"--config.file={self._directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ]
        )
        wait_until("Prometheus", self._is_ready, 30)

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of a response of its HTTP API; raises if the request is invalid."""
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """The current series of an expression."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def _is_ready(self) -> bool:
        self._check_it_starts()
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5):
                return True
        except (URLError, OSError):
            return False
