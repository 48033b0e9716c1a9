"""A running application, seen through its admin server: whether it serves, and has processed what there is."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any
from urllib.request import urlopen

HOST, PORT = "127.0.0.1", 7070
_TIMEOUT_S = 5


def is_caught_up() -> bool:
    """Whether an application is ready and has no records left to process."""
    with contextlib.suppress(OSError):
        _get("/health/ready")
        partitions = _get("/watermarks")["partitions"]
        return bool(partitions) and all(partition["lag"] == 0 for partition in partitions)
    return False


def is_taken(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _get(path: str) -> Any:
    with urlopen(f"http://{HOST}:{PORT}{path}", timeout=_TIMEOUT_S) as answer:
        return json.load(answer)
